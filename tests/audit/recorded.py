"""What a sidecar records of a real Flink: a recording of its ZooKeeper, played through the core."""

from collections.abc import Iterator

from msgspec.structs import replace

from sidecar.core.alerting.alerting_step import Send
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.observations import DeliveryOutcome, DeliverySettled, Observation, Started, Stopped, Ticked
from sidecar.core.policy.routing import Route
from sidecar.core.records import AnyRecord
from sidecar.core.state import Append, State
from sidecar.core.step import step
from tests.kit import zookeeper_recordings as recordings
from tests.kit.core_sidecar import OPS, POLICY

_POLICY = replace(
    POLICY,
    observer="jm-0",
    route=Route("ops", group_wait=5 * SECOND, group_interval=6 * SECOND),
    receivers={"ops": (replace(OPS, service="slack"),)},
    session_timeouts={"default": 5 * SECOND},
)
"""The failovers of a recording follow each other faster than real ones should be notified."""
_DELIVERED_AFTER = SECOND // 4


def records(version: str) -> list[AnyRecord]:
    """All records of a sidecar that watched this recording, through the connection of the listener that tolerates suspended ones."""
    state, made = State(), list[AnyRecord]()
    for observation in _observations(version):
        waiting: list[Observation] = [observation]
        while waiting:
            now = waiting.pop()
            state, effects = step(_POLICY, state, now)
            made += (replace(e.record, recorded_at=timestamp(now.at.wall)) for e in effects if isinstance(e, Append))
            waiting += (_delivered(e.delivery, now.at) for e in effects if isinstance(e, Send))
    return made


def _observations(version: str) -> Iterator[Observation]:
    at: Moment | None = None
    for _, observation in recordings.observations(version, "oracle_tol"):
        if at is None:
            at = observation.at
            yield Started(at)
        while at.steady + SECOND < observation.at.steady:
            at = Moment(at.steady + SECOND, at.wall + SECOND)
            yield Ticked(at)
        yield observation
        at = max(at, observation.at)
    assert at is not None
    yield Stopped(at)


def _delivered(delivery: Delivery, at: Moment) -> DeliverySettled:
    settled = Moment(at.steady + _DELIVERED_AFTER, at.wall + _DELIVERED_AFTER)
    return DeliverySettled(settled, delivery.id, DeliveryOutcome.DELIVERED)
