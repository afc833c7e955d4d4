"""The report's pictures of why JobManagers ended and of what came back: what nobody knows stands apart, and is never good."""

from collections.abc import Mapping
from typing import Any, Final

from sidecar.audit.report import report_charts as charts
from sidecar.audit.report.report_card import Card, ReportTable
from sidecar.audit.report.report_charts import Series
from sidecar.audit.report.report_data import NOT_ASSESSED, NOT_OBSERVED, Findings
from sidecar.audit.report.report_period import utc
from sidecar.audit.report.report_text import minute, seconds, short

_REASONS: Final = 4
"""The maximum number of reasons in the picture, beside those that nobody knows."""
_NO_REASON: Final = {"unknown": "unknown", NOT_OBSERVED: "unseen"}
"""What stands apart, and its CSS class."""
_VERDICTS: Final = {
    "recovered": "delivered",
    "degraded": "down",
    "lost": "vacant",
    "unproven": "unknown",
    NOT_ASSESSED: "unseen",
}
"""Each verdict and its CSS class."""
_STEPS: Final = {
    "Loss observed": "opened_after_seconds",
    "Dispatcher led": "dispatcher_led_after_seconds",
    "All components led": "led_after_seconds",
    "All jobs running": "running_after_seconds",
    "First checkpoints": "checkpointed_after_seconds",
}


def outcomes(findings: Findings) -> list[Card]:
    """Nothing if no observer recorded a death or a recovery."""
    if findings.by_death.keys() <= {NOT_OBSERVED} and findings.by_verdict.keys() <= {NOT_ASSESSED}:
        return []
    return [_deaths(findings.by_death), _verdicts(findings.by_verdict), _slowest(findings.slowest)]


def _deaths(by_death: Mapping[str, Any]) -> Card:
    reasons = sorted(by_death.keys() - _NO_REASON.keys(), key=lambda reason: (-by_death[reason].n, reason))
    apart = [reason for reason in _NO_REASON if reason in by_death]
    drawn = {
        short(reason): [Series("failovers", _NO_REASON.get(reason, "unplanned"), [by_death[reason].n])]
        for reason in [*reasons[:_REASONS], *apart]
    }
    text = "Why the JobManager's process ended."
    text += f" The {_REASONS} most frequent of {len(reasons)} reasons." if len(reasons) > _REASONS else ""
    rows = [
        (short(reason), f"{by_death[reason].n:,}", seconds(by_death[reason].down_median_at_most))
        for reason in [*reasons, *apart]
    ]
    columns = ("Reason", "Failovers", "No working leader, median of the upper bounds")
    return Card(
        "Causes of death",
        f"{text} Unknown and not observed are no reasons.",
        charts.rows("Failovers by the reason of the death", drawn),
        tables=(ReportTable("Failovers by the reason of the death", columns, rows),),
    )


def _verdicts(by_verdict: Mapping[str, Any]) -> Card:
    verdicts = [*_VERDICTS, *sorted(by_verdict.keys() - _VERDICTS.keys())]
    rows = [(verdict, by_verdict[verdict].n) for verdict in verdicts if verdict in by_verdict]
    return Card(
        "Recovery",
        "Whether jobs, their state and TaskManagers came back. Unproven and not assessed may be either.",
        charts.rows(
            "Failovers by what came back",
            {short(name): [Series("failovers", _VERDICTS.get(name, "unknown"), [n])] for name, n in rows},
        ),
        tables=(
            ReportTable(
                "Failovers by what came back", ("Verdict", "Failovers"), [(short(a), f"{n:,}") for a, n in rows]
            ),
        ),
    )


def _slowest(episode: Any) -> Card:
    title = "Slowest recovery"
    if episode is None:
        return Card(title, "Of no failover were all jobs seen running again.")
    ends = {name: episode[column] for name, column in _STEPS.items() if episode[column] is not None}
    began = "the end of the process" if episode.dead_at else "the observed loss"
    return Card(
        title,
        f"{short(episode.cluster_id)}, {minute(utc(episode.opened_at))}: {short(episode.cause)}, recovery {short(episode.verdict)}."
        f" Times since {began}.",
        charts.steps(title, ends, seconds),
        tables=(
            ReportTable("Steps of the slowest recovery", ("Step", "After"), [(n, seconds(s)) for n, s in ends.items()]),
        ),
    )
