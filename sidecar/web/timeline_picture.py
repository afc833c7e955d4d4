"""Timelines as pictures: the last hours of a cluster, and one failover. Spans of time become the columns of an SVG, so that its size is
bounded however much happened.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster.record_lines import lasted
from sidecar.core.failover.causes import Cause
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.moment import SECOND, Timestamp, age, parsed, seconds, timestamp
from sidecar.core.pods import Pods, name_at
from sidecar.core.records import EpisodeRecord, Notification, TransitionRecord
from sidecar.core.sanitize import clean
from sidecar.core.views.episode_view import open_episodes
from sidecar.core.views.explain import Explanation
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.timeline import OWN, LeaderSpan, SpanState, Switch, blind_now, change, current, spans, totals
from sidecar.web.queries import DAY, LastDay

COLUMNS: Final = 288
"""The columns of a picture. What is shorter than a column is as wide as one; a column shows the worst of what was in it."""
COLOURS: Final = 6
"""The colours of leaders; further ones share them."""
TICKS: Final = 5
"""Labels of the axis."""
SPANS_IN_TEXT: Final = 10
"""The latest of a row, in its text alternative."""
_MARK_COLUMNS: Final = 12
"""Marks closer than this are one."""
_NARROWEST_NAME: Final = 26
"""Columns of a leader's time that shows its name."""
_STATES: Final = {
    SpanState.VACANT: "no leader",
    SpanState.BLIND: "cannot be seen",
    SpanState.UNRECORDED: "no records",
}
_LINE: Final = "M{x} 7h{w}"
"""A thick line is a rectangle. The style sheet sets its thickness: the states differ in shape too."""
JOBS_DRAWN: Final = 3
"""The jobs of a failover that are drawn."""
_MARGIN: Final = 5
"""A failover's picture begins and ends by a part of its length, this many to one, before and after it."""
_SOON: Final = 15 * SECOND
"""After a failover: until then messages are in its picture."""
_SHORTEST: Final = 10 * SECOND


class Path(Struct, frozen=True):
    """All columns of one kind; `kind` is a class of the style sheet."""

    kind: str
    d: str


class Name(Struct, frozen=True):
    """A leader's name where there is room for it. Per cent of the width."""

    left: float
    width: float
    text: str


class TextSpan(Struct, frozen=True):
    """One span in the text alternative."""

    start: Timestamp
    what: str
    for_long: str


class PictureRow(Struct, frozen=True):
    """One component's picture."""

    label: str
    title: str
    """The picture in one sentence."""
    summary: str
    """Text worth reading beside it, and not of all rows."""
    paths: Sequence[Path]
    names: Sequence[Name]
    text: Sequence[TextSpan]
    left_out: int
    """Earlier spans that `text` does not have."""


class Happening(Struct, frozen=True):
    """Something that happened at one moment, with a link if it has a page of its own."""

    at: int
    kind: str
    text: str
    link: str | None = None
    left: float = 0.0
    """The place of its mark: per cent of the width."""


class TimelinePicture(Struct, frozen=True):
    """The rows of one cluster, or of one failover, over the same time."""

    ticks: Sequence[Timestamp]
    """At equal distances, the first at its left end, the last at its right one."""
    summary: str
    """Text worth reading of all rows, as far as it is the same."""
    rows: Sequence[PictureRow]
    marks: Sequence[Happening]
    leaders: Sequence[tuple[str, str]]
    """The class and the name of each leader that is shown."""


def cluster_picture(snapshot: Snapshot, day: LastDay, cluster_id: str, hours: int) -> TimelinePicture:
    """The last hours of one watched cluster, at most a day, with its failovers."""
    cluster, end = snapshot.state.clusters[cluster_id], snapshot.at.wall
    start, blind = end - min(hours * 3600 * SECOND, DAY), list(day.blind.get(cluster_id, ()))
    if now_blind := blind_now(cluster, snapshot.at):
        blind.append(now_blind)
    rows: dict[str, list[LeaderSpan]] = {}
    for component in OWN:
        component_state = cluster.components.get(ComponentId(Component(component)))
        state = current(component_state.leadership) if component_state else None
        changes = day.changes.get((cluster_id, component), ())
        row = spans(changes, blind, state, start, end, day.since or end)
        rows[component] = _name_pods(row, cluster.pods)
    going_on = [view for view in open_episodes(snapshot) if view.id not in day.episodes]
    marks = [_mark(episode) for episode in (*day.episodes.values(), *going_on) if episode.cluster_id == cluster_id]
    return drawn(rows, marks, start, end)


def _name_pods(spans: Iterable[LeaderSpan], pods: Pods) -> list[LeaderSpan]:
    """The spans with the names of pods in place of hosts, as far as they are known."""
    return [replace(span, leader=name_at(pods, span.leader) or span.leader) for span in spans]


def _mark(episode: EpisodeRecord) -> Happening:
    kind = "unseen" if episode.cause == Cause.OBSERVER_BLIND else "planned" if episode.planned else "episode"
    return Happening(parsed(episode.opened_at), kind, _episode_words(episode), f"episodes/{episode.id}")


def _episode_words(episode: EpisodeRecord) -> str:
    vacant = (
        ""
        if episode.vacant_seconds is None
        else f", no leader for {lasted(episode.vacant_seconds, episode.vacant_seconds)}"
    )
    going_on = "" if episode.closed_at else ", not over"
    return f"{episode.opened_at[11:19]} {episode.cause}{vacant}{going_on}"


def episode_picture(explained: Explanation, snapshot: Snapshot) -> TimelinePicture | None:
    """One failover, of each component and of the first jobs, with its messages. None: nothing is recorded of it yet."""
    if not explained.transitions:
        return None
    opened = parsed(explained.transitions[0].observed_at)
    episode = explained.episode
    closed = parsed(episode.closed_at) if episode and episode.closed_at else None
    last = snapshot.at.wall if closed is None else max(closed, *_soon_after(explained, closed))
    margin = max(last - opened, _SHORTEST) // _MARGIN
    start, end = opened - margin, last + margin if closed else last
    cluster = snapshot.state.clusters.get(explained.transitions[0].cluster_id)
    pods = cluster.pods if cluster else {}
    spans_of = {label: spans(changes, (), None, start, end, start) for label, changes in _changes(explained)}
    rows = {label: _name_pods(row, pods) for label, row in spans_of.items()}
    return drawn(rows, map(_message, explained.notifications), start, end)


def _soon_after(explained: Explanation, closed: int) -> Iterator[int]:
    """The times of the last transition, and of messages that were sent soon after the failover."""
    yield parsed(explained.transitions[-1].observed_at)
    yield from (at for message in explained.notifications if (at := parsed(message.observed_at)) <= closed + _SOON)


def _changes(explained: Explanation) -> Iterator[tuple[str, Sequence[Switch]]]:
    """The label and the changes of each component, then of the first jobs."""
    by_subject: dict[tuple[str, str | None], list[TransitionRecord]] = {}
    for transition in explained.transitions:
        by_subject.setdefault((transition.component, transition.job_id), []).append(transition)
    jobs = [subject for subject in by_subject if subject[1]][:JOBS_DRAWN]
    for component, job_id in [*((own, None) for own in OWN if (own, None) in by_subject), *jobs]:
        label = f"job {clean(explained.job_names.get(job_id) or job_id[:8], 40)}" if job_id else component
        yield label, [change(transition) for transition in by_subject[component, job_id]]


def _message(message: Notification) -> Happening:
    to = message.destination.rpartition("#")[0] or message.receiver
    return Happening(
        parsed(message.observed_at),
        "message" if message.outcome != "suppressed" else "suppressed",
        clean(f"{message.observed_at[11:19]} {message.alert} {message.reason} to {to}: {message.outcome}"),
    )


def drawn(
    rows: Mapping[str, Sequence[LeaderSpan]], happenings: Iterable[Happening], start: int, end: int
) -> TimelinePicture:
    """The picture of spans by label, from `start` to `end` (wall)."""
    leaders = list(dict.fromkeys(span.leader for spans in rows.values() for span in spans if span.leader))
    kinds = {leader: f"led{place % COLOURS}" for place, leader in enumerate(leaders)}
    vacancies = {label: _vacancies(spans) for label, spans in rows.items()}
    gaps = {label: _gaps(spans) for label, spans in rows.items()}
    of_all = [next(iter(texts.values())) for texts in (vacancies, gaps) if len(set(texts.values())) == 1]
    return TimelinePicture(
        [timestamp(start + (end - start) * tick // (TICKS - 1)) for tick in range(TICKS)],
        ", ".join(filter(None, of_all)),
        [_row(label, spans, kinds, of_all, start, end) for label, spans in rows.items()],
        _marks(happenings, start, end),
        [(kinds[leader], leader) for leader in leaders[:COLOURS]],
    )


def _row(
    label: str, spans: Sequence[LeaderSpan], kinds: Mapping[str, str], of_all: Collection[str], start: int, end: int
) -> PictureRow:
    columns = _columns(spans, start, end)
    leaders = [leader for leader in dict.fromkeys(span.leader for span in spans) if leader]
    more = f" and {len(leaders) - COLOURS} more" if len(leaders) > COLOURS else ""
    led = f"led by {', '.join(leaders[:COLOURS])}{more}" if leaders else "no leader seen"
    parts = [_vacancies(spans), _gaps(spans)]
    text = [
        TextSpan(timestamp(span.start), span.leader or _STATES.get(span.state, "?"), _duration(span.end - span.start))
        for span in spans[-SPANS_IN_TEXT:]
    ]
    return PictureRow(
        label,
        f"{label}: {', '.join(filter(None, [led, *parts]))}",
        ", ".join(part for part in parts if part and part not in of_all),
        _paths(columns, kinds),
        _names(columns),
        text,
        len(spans) - len(text),
    )


Column = tuple[SpanState, str | None]


def _columns(spans: Sequence[LeaderSpan], start: int, end: int) -> list[Column]:
    """The worst that was in each column: no leader, then blindness, then the last leader."""
    columns: list[Column] = [(SpanState.UNRECORDED, None)] * COLUMNS
    for state in (SpanState.HELD, SpanState.BLIND, SpanState.VACANT):
        for span in spans:
            if span.state is state:
                first = min((span.start - start) * COLUMNS // max(1, end - start), COLUMNS - 1)
                last = min(-((start - span.end) * COLUMNS // max(1, end - start)), COLUMNS)
                last = max(last, first + 1)
                columns[first:last] = [(span.state, span.leader)] * (last - first)
    return columns


def _runs(columns: Sequence[Column]) -> Iterable[tuple[int, int, Column]]:
    """Equal neighbours: where they begin, how many they are, and what they show."""
    begin = 0
    for place in range(1, len(columns) + 1):
        if place == len(columns) or columns[place] != columns[begin]:
            yield begin, place - begin, columns[begin]
            begin = place


def _paths(columns: Sequence[Column], kinds: Mapping[str, str]) -> list[Path]:
    lines: dict[str, list[str]] = {}
    for begin, width, (state, leader) in _runs(columns):
        if state is not SpanState.UNRECORDED:
            kind = kinds[leader] if leader else state.value
            lines.setdefault(kind, []).append(_LINE.format(x=begin, w=width))
    return [Path(kind, "".join(parts)) for kind, parts in lines.items()]


def _names(columns: Sequence[Column]) -> list[Name]:
    return [
        Name(round(begin / COLUMNS * 100, 2), round(width / COLUMNS * 100, 2), leader)
        for begin, width, (_, leader) in _runs(columns)
        if leader and width >= _NARROWEST_NAME
    ]


def _vacancies(spans: Sequence[LeaderSpan]) -> str:
    """The number of times without a leader, and their length; empty: never."""
    number, total = totals(spans).get(SpanState.VACANT, (0, 0))
    if number == 1:
        return f"no leader once, {_duration(total)}"
    return f"no leader {number} times, {_duration(total)} in all" if number else ""


def _gaps(spans: Sequence[LeaderSpan]) -> str:
    """For how long nothing is known; empty: not worth a word."""
    sums = totals(spans)
    words = {SpanState.BLIND: "not seen for", SpanState.UNRECORDED: "no records of"}
    times = {state: sums.get(state, (0, 0))[1] for state in words}
    return ", ".join(f"{words[state]} {_duration(total)}" for state, total in times.items() if total >= SECOND)


def _duration(micros: int) -> str:
    """Exact where it is short."""
    return seconds(micros) if micros < 60 * SECOND else age(micros)


def _marks(happenings: Iterable[Happening], start: int, end: int) -> list[Happening]:
    """At most one in each few columns: of several the latest, with their number."""
    places: dict[tuple[int, str], list[Happening]] = {}
    for happening in sorted(happenings, key=lambda happening: happening.at):
        if start <= happening.at <= end:
            column = (happening.at - start) * COLUMNS // max(1, end - start)
            places.setdefault((column // _MARK_COLUMNS, happening.kind), []).append(happening)
    marks = []
    for together in places.values():
        last = together[-1]
        text = last.text if len(together) == 1 else f"{len(together)} here, the last: {last.text}"
        left = round((last.at - start) / max(1, end - start) * 100, 2)
        marks.append(replace(last, text=text, left=left))
    return marks
