"""The pictures of pages: the last hours of a cluster, and one failover."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.failover.causes import Cause
from sidecar.core.cluster.records.record_lines import lasted
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.moment import SECOND, parsed
from sidecar.core.pods import Pods, name_at
from sidecar.core.records import EpisodeRecord, Notification, TransitionRecord
from sidecar.core.sanitize import clean
from sidecar.core.views.episode_view import EpisodeView, in_progress
from sidecar.core.views.explain import Explanation
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.timeline import OWN, Change, Span, blind_now, change, current, spans
from sidecar.web.last_day import DAY, LastDay
from sidecar.web.timeline_picture import Happening, Picture, drawn

JOBS_DRAWN: Final = 3
"""Of a failover."""
_MARGIN: Final = 5
"""A failover's picture begins and ends by a part of its length, this many to one, before and after it."""
_SOON: Final = 15 * SECOND
"""After a failover: until then messages are in its picture."""
_SHORTEST: Final = 10 * SECOND


def of_cluster(snapshot: Snapshot, day: LastDay, cluster_id: str, hours: int) -> Picture:
    """The last hours of one watched cluster, at most a day, with its failovers."""
    cluster, end = snapshot.state.clusters[cluster_id], snapshot.at.wall
    start, blind = end - min(hours * 3600 * SECOND, DAY), list(day.blind.get(cluster_id, ()))
    if now_blind := blind_now(cluster, snapshot.at):
        blind.append(now_blind)
    rows: dict[str, list[Span]] = {}
    for component in OWN:
        component_state = cluster.components.get(ComponentId(Component(component)))
        state = current(component_state.leadership) if component_state else None
        changes = day.changes.get((cluster_id, component), ())
        row = spans(changes, blind, state, start, end, day.since or end)
        rows[component] = _with_pods(row, cluster.pods)
    going_on = [view for view in in_progress(snapshot) if view.id not in day.episodes]
    episodes: list[EpisodeRecord | EpisodeView] = [*day.episodes.values(), *going_on]
    marks = [_mark(episode) for episode in episodes if episode.cluster_id == cluster_id]
    return drawn(rows, marks, start, end)


def _with_pods(spans: Iterable[Span], pods: Pods) -> list[Span]:
    """The spans with the names of pods in place of hosts, as far as they are known."""
    return [replace(span, leader=name_at(pods, span.leader) or span.leader) for span in spans]


def _mark(episode: EpisodeRecord | EpisodeView) -> Happening:
    kind = "unseen" if episode.cause == Cause.OBSERVER_BLIND else "planned" if episode.planned else "episode"
    return Happening(parsed(episode.opened_at), kind, _in_words(episode), f"episodes/{episode.id}")


def _in_words(episode: EpisodeRecord | EpisodeView) -> str:
    vacant = (
        ""
        if episode.vacant_seconds is None
        else f", no leader for {lasted(episode.vacant_seconds, episode.vacant_seconds)}"
    )
    going_on = ", not over" if episode.closed_at is None else ""
    return f"{episode.opened_at[11:19]} {episode.cause}{vacant}{going_on}"


def of_episode(explained: Explanation, failover: EpisodeView | None, snapshot: Snapshot) -> Picture | None:
    """One failover, of each component and of the first jobs, with its messages. None: nothing is recorded of it yet."""
    if not explained.transitions:
        return None
    opened = parsed(explained.transitions[0].observed_at)
    closed = parsed(failover.closed_at) if failover and failover.closed_at else None
    last = snapshot.at.wall if closed is None else max(closed, *_soon_after(explained, closed))
    margin = max(last - opened, _SHORTEST) // _MARGIN
    start, end = opened - margin, last + margin if closed else last
    cluster = snapshot.state.clusters.get(explained.transitions[0].cluster_id)
    pods = cluster.pods if cluster else {}
    spans_of = {label: spans(changes, (), None, start, end, start) for label, changes in _changes(explained)}
    rows = {label: _with_pods(row, pods) for label, row in spans_of.items()}
    return drawn(rows, map(_message, explained.notifications), start, end)


def _soon_after(explained: Explanation, closed: int) -> Iterator[int]:
    """The times of the last transition, and of messages that were sent soon after the failover."""
    yield parsed(explained.transitions[-1].observed_at)
    yield from (at for message in explained.notifications if (at := parsed(message.observed_at)) <= closed + _SOON)


def _changes(explained: Explanation) -> Iterator[tuple[str, Sequence[Change]]]:
    """The label and the changes of each component, then of the first jobs."""
    by_subject: dict[tuple[str, str | None], list[TransitionRecord]] = {}
    for transition in explained.transitions:
        by_subject.setdefault((transition.component, transition.job_id), []).append(transition)
    names = {file.subject: file.attributes.get("name") for file in explained.evidence if file.kind == "job"}
    jobs = [subject for subject in by_subject if subject[1]][:JOBS_DRAWN]
    for component, job_id in [*((own, None) for own in OWN if (own, None) in by_subject), *jobs]:
        label = f"job {clean(names.get(job_id) or job_id[:8], 40)}" if job_id else component
        yield label, [change(transition) for transition in by_subject[component, job_id]]


def _message(message: Notification) -> Happening:
    to = message.destination.rpartition("#")[0] or message.receiver
    return Happening(
        parsed(message.observed_at),
        "message" if message.outcome != "suppressed" else "suppressed",
        clean(f"{message.observed_at[11:19]} {message.alert} {message.reason} to {to}: {message.outcome}"),
    )
