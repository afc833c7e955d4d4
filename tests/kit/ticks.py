"""A sidecar's clock between what a driver observes."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import Observation, Started, Ticked

P = TypeVar("P")


def ticked(observed: Iterable[tuple[P, Observation]], every: int = SECOND) -> Iterator[tuple[P, Observation]]:
    """The start, then each observation with its phase, and the ticks between them: one every so many microseconds."""
    at: Moment | None = None
    for phase, observation in observed:
        if at is None:
            at = observation.at
            yield phase, Started(at)
        while at.steady + every < observation.at.steady:
            at = Moment(at.steady + every, at.wall + every)
            yield phase, Ticked(at)
        yield phase, observation
