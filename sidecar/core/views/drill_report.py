"""What a drill has shown: its result and figures, who got its message, which alerts it hid, and the earlier drills of its cluster."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from sidecar.core.cluster.record_lines import cluster_line, death_line, job_line, moved
from sidecar.core.counted import shortened
from sidecar.core.drills.drill import STARTED
from sidecar.core.drills.findings import DrillMessage, Result, figures, findings_of, judged
from sidecar.core.errors import OperatorError
from sidecar.core.moment import Timestamp, in_seconds, micros, parsed, seconds
from sidecar.core.records import AnyRecord, Death, Drill, EpisodeRecord, Recovery
from sidecar.core.sanitize import clean
from sidecar.core.state import State
from sidecar.core.views.explain import Fact, below_names

MOST_EARLIER: Final = 10
"""Earlier drills in a report."""


class NoDrillError(OperatorError):
    """There is no such drill: whether it has passed is unknown."""

    exit_status = 3


class DrillDelivery(Struct, frozen=True):
    """What became of the drill's message to one destination."""

    destination: str
    delivered: bool
    outcome: str
    """As in `notification` records; `already_told`: another sidecar has sent it."""
    after_seconds: float | None
    """From when it was queued. Null: no attempt has ended."""
    detail: str | None


class Hidden(Struct, frozen=True):
    """An alert that would have been sent."""

    alert: str
    receiver: str


class Report(Struct, frozen=True, kw_only=True):
    """One drill."""

    drill: Drill
    """As it was recorded when it began."""
    result: str
    """`passed`, `failed` or `unknown`."""
    reasons: Sequence[str]
    """Why it is not `passed`."""
    over_at: Timestamp | None
    """When its window was over. Null: it is open."""
    episode: EpisodeRecord | None
    """The failover, when it is over."""
    death: Death | None
    recovery: Recovery | None
    """The row of the cluster."""
    jobs: Sequence[Recovery]
    jobs_total: int
    detected_after_seconds: float | None
    detected_after_seconds_at_most: float | None
    leaderless_seconds: float | None
    led_after_seconds: float | None
    running_after_seconds: float | None
    messages: Sequence[DrillDelivery]
    hidden: Sequence[Hidden]
    """Which alerts it kept from whom, each once."""
    earlier: Sequence[Drill]
    """How the earlier drills of the cluster ended, the newest first."""


def chosen(drills: Iterable[Drill], name: str | None) -> tuple[Drill, Drill | None, list[Drill]]:
    """The drill whose id begins with `name` (None: the last one) as it began, how it ended, and the ends of the cluster's earlier ones.

    `drills`: all records of drills, oldest first. Raises NoDrillError.
    """
    began: dict[str, Drill] = {}
    ends: dict[str, Drill] = {}
    for drill in drills:
        (began if drill.phase == STARTED else ends).setdefault(drill.drill_id, drill)
    fitting = [drill for drill in began.values() if name is None or drill.drill_id.startswith(name)]
    if name is not None and len(fitting) > 1:
        raise NoDrillError(f"{len(fitting)} drills begin with {clean(name)!r}: give more of the id")
    if not fitting:
        which = "no drill is recorded" if name is None else f"no recorded drill begins with {clean(name)!r}"
        raise NoDrillError(f"{which}: a sidecar knows a drill ten seconds after `drill start`")
    of = fitting[-1]
    earlier = [drill for drill in ends.values() if drill.cluster_id == of.cluster_id and drill.starts_at < of.starts_at]
    return of, ends.get(of.drill_id), sorted(earlier, key=lambda drill: drill.starts_at, reverse=True)[:MOST_EARLIER]


def build_report(
    of: Drill, ended: Drill | None, earlier: Sequence[Drill], records: Iterable[AnyRecord], state: State
) -> Report:
    """The report of one drill. `records`: of the journal, oldest first; `state`: as it is there."""
    running = state.drills.get(of.drill_id)
    over = running.over.wall if running and running.over else None
    if ended and ended.over_at:
        over = parsed(ended.over_at)
    elif running is None:
        over = parsed(of.ends_at)  # the sidecar has lost its state in the middle of the drill
    findings = findings_of(of, records, over)
    result, reasons = judged(of, findings, over, is_final=running is None)
    measured = figures(findings)._asdict()
    if ended and ended.result:
        result, reasons = Result(ended.result), tuple(ended.reasons)
        measured = {name: getattr(ended, name) for name in measured}
    return Report(
        drill=of,
        result=result.value,
        reasons=reasons,
        over_at=ended.over_at if ended else None,
        episode=findings.episode,
        death=findings.death,
        recovery=findings.recovery,
        jobs=findings.jobs,
        jobs_total=findings.jobs_total,
        **measured,
        messages=[_delivery(name, findings.messages.get(name)) for name in of.receivers],
        hidden=[Hidden(alert, receiver) for alert, receiver in findings.hidden],
        earlier=earlier,
    )


def _delivery(name: str, message: DrillMessage | None) -> DrillDelivery:
    if message is None:
        return DrillDelivery(name, delivered=False, outcome="unknown", after_seconds=None, detail=None)
    after = None if message.at is None else max(0.0, in_seconds(parsed(message.at) - parsed(message.queued_at)))
    return DrillDelivery(name, message.arrived, message.outcome, after, message.detail)


# -- in words ----------------------------------------------------------------------------------------------------------


def report_lines(report: Report) -> Iterator[str]:
    """The report but for its table, a line each."""
    of = report.drill
    result = [f"{of.drill_id} of {clean(of.cluster_id)}: {report.result}", *report.reasons]
    yield from below_names((("drill", result), *_window(report), *_failover(report), *_messages(report)))


def table(report: Report) -> list[tuple[str, ...]]:
    """This drill beside the earlier ones, below their header. Empty: there is no earlier one."""
    if not report.earlier:
        return []
    verdict = report.recovery.verdict if report.recovery else None
    own = _row(report.drill, report, verdict, report.result)
    earlier = (_row(drill, drill, drill.recovery_verdict, drill.result) for drill in report.earlier)
    header = ("Started (UTC)", "Detected", "Leaderless", "Led Again", "Jobs Run", "Recovery", "Result")
    return [header, own, *earlier]


def _row(drill: Drill, of: Drill | Report, verdict: str | None, result: str | None) -> tuple[str, ...]:
    exactly, at_most = of.detected_after_seconds, of.detected_after_seconds_at_most
    detected = _spelled(exactly) if exactly is not None or at_most is None else f"≤ {_spelled(at_most)}"
    times = map(_spelled, (of.leaderless_seconds, of.led_after_seconds, of.running_after_seconds))
    return drill.starts_at[:16].replace("T", " "), detected, *times, clean(verdict or "-"), clean(result or "-")


def _spelled(duration: float | None) -> str:
    return "-" if duration is None else seconds(micros(duration))


def _window(report: Report) -> Iterator[Fact]:
    of, over_at = report.drill, report.over_at
    why = f": {clean(of.comment)}" if of.comment else ""
    until = f"{_clock(over_at)}" if over_at else f"{_clock(of.ends_at)}, open"
    early = ", stopped" if over_at and over_at[:19] < of.ends_at[:19] else ""
    yield "window", [f"{_clock(of.starts_at)} to {until}{early}, started by {clean(of.author)}{why}"]


def _clock(at: Timestamp) -> str:
    return f"{at[:19].replace('T', ' ')}Z"


def _failover(report: Report) -> Iterator[Fact]:
    if episode := report.episode:
        yield "failover", [f"{moved(episode)}: {episode.cause} ({episode.confidence}) [{episode.id}]"]
    if report.death:
        yield "death", [death_line(report.death)]
    if report.detected_after_seconds is not None:
        yield "detected", [f"{_spelled(report.detected_after_seconds)} after the leader's process ended"]
    elif report.detected_after_seconds_at_most is not None:
        at_most = _spelled(report.detected_after_seconds_at_most)
        yield "detected", [f"{at_most} after the store last heard of the leader, at most: when it ended is not known"]
    if report.led_after_seconds is not None:
        vacant = report.leaderless_seconds
        without = "" if vacant is None else f" (no published leader for {_spelled(vacant)})"
        yield "led again", [f"after {_spelled(report.led_after_seconds)}{without}"]
    yield from _recovery(report)


def _recovery(report: Report) -> Iterator[Fact]:
    if report.recovery:
        jobs = shortened([*map(job_line, report.jobs)], len(report.jobs), report.jobs_total, "job")
        yield "recovery", [cluster_line(report.recovery), *jobs]
    elif report.episode and not report.drill.assessed:
        yield "recovery", ["not assessed: flink_rest is never"]


def _messages(report: Report) -> Iterator[Fact]:
    lines = [_message_line(message) for message in report.messages]
    yield "message", lines or ["to nobody: no receiver would get a critical alert of this cluster"]
    if report.hidden:
        yield "hidden", [f"{clean(hidden.alert)}, to {clean(hidden.receiver)}" for hidden in report.hidden]


def _message_line(message: DrillDelivery) -> str:
    name, detail = clean(message.destination), f": {clean(message.detail)}" if message.detail else ""
    after = "" if message.after_seconds is None else f" after {_spelled(message.after_seconds)}"
    if message.outcome == "already_told":
        return f"delivered to {name} by another sidecar{f' ({clean(message.detail)})' if message.detail else ''}"
    if message.delivered:
        return f"delivered to {name}{after}"
    return f"NOT delivered to {name} ({clean(message.outcome)}){detail}"


def exit_status(report: Report) -> int:
    """0: passed; 1: failed; 3: cannot tell yet."""
    return {Result.PASSED.value: 0, Result.FAILED.value: 1}.get(report.result, 3)
