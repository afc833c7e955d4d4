"""One failover in words, from the records that were made of it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from sidecar.core.errors import OperatorError
from sidecar.core.leadership import host_port
from sidecar.core.messages import MOST_LINES, clean, move, transition_line
from sidecar.core.records import AnyRecord, Episode, Transition

_LEAST: Final = 4
"""So many characters of an id are enough, if no other begins with them."""


class UnknownEpisodeError(OperatorError):
    """There is no such episode."""


class Explanation(Struct, frozen=True):
    """What is known of one episode. It is null while the episode is not over."""

    id: str
    episode: Episode | None
    transitions: Sequence[Transition]


def find(records: Iterable[AnyRecord], name: str) -> Explanation:
    """The episode whose id is `name`, or alone begins with it. Raises UnknownEpisodeError."""
    episodes: dict[str, Episode] = {}
    transitions: dict[str, list[Transition]] = {}
    for record in records:
        match record:
            case Episode(id=found):
                episodes[found] = record
            case Transition(episode_id=str(found)):
                transitions.setdefault(found, []).append(record)
    known = {**transitions, **episodes}
    fitting = [found for found in known if found.startswith(name)] if len(name) >= _LEAST else []
    if len(fitting) != 1:
        what = f"{len(fitting)} episodes begin" if fitting else "no episode that is remembered begins"
        raise UnknownEpisodeError(f"{what} with {clean(name)!r}: `timeline` shows which there are")
    return Explanation(fitting[0], episodes.get(fitting[0]), transitions.get(fitting[0], ()))


def in_words(explained: Explanation) -> Iterator[str]:
    """Line by line: what, when, why, to whom, to what; then what happened, in order."""
    episode = explained.episode
    yield f"episode    {explained.id}"
    if episode is None:
        yield f"from       {explained.transitions[0].observed_at}, and not over yet: its cause is decided when it is"
    else:
        yield from _facts(episode)
    if explained.transitions:
        yield ""
    for transition in explained.transitions[:MOST_LINES]:
        yield f"{transition.observed_at} {transition_line(transition)}"
    if (more := len(explained.transitions) - MOST_LINES) > 0:
        yield f"… and {more} more"


def _facts(episode: Episode) -> Iterator[str]:
    yield f"cluster    {clean(episode.cluster_id)}"
    yield f"from       {episode.opened_at} to {episode.closed_at}"
    yield f"cause      {episode.cause} ({episode.confidence})"
    for fact in episode.facts:
        yield f"           {clean(fact)}"
    if not episode.failovers:
        return
    yield f"leader     {move(host_port(episode.before_address or ''), host_port(episode.after_address or ''))}"
    if episode.failovers > 1:
        yield f"           {episode.failovers} leaders followed each other"
    vacant = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in episode.vacant_seconds_by_component.items())
    yield f"no leader  {vacant or 'was never seen to be missing'}"
    if episode.jobs_total:
        missing = f", {episode.jobs_missing} still without a leader" if episode.jobs_missing else ""
        ended = f", {episode.jobs_ended} ended in it" if episode.jobs_ended else ""
        yield f"jobs       {episode.jobs_affected} of {episode.jobs_total} moved{ended}{missing}"
