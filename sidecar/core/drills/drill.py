"""A drill while it lasts, and what is recorded of it."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.silence_document import StoredSilence
from sidecar.core.cluster.draft import envelope
from sidecar.core.drills.findings import Findings, Result, figures, judged
from sidecar.core.moment import Moment, timestamp
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.records import Drill, record_id

STARTED: Final = "started"
ENDED: Final = "ended"


class RunningDrill(Struct, frozen=True):
    """A drill that this sidecar knows, until its end is recorded."""

    began: Drill
    """The record of the drill's beginning."""
    since: Moment
    """When the drill became known."""
    over: Moment | None = None
    """When the drill's window was over. None: it is not."""
    findings: Findings = Findings()


def began(policy: Policy, drill: StoredSilence, receivers: tuple[str, ...], now: Moment) -> Drill:
    """The record of a drill that becomes known."""
    assert drill.drill  # noqa: S101  as the caller chooses
    return Drill(
        id=record_id("drill", drill.drilled_cluster, drill.id, STARTED),
        drill_id=drill.id,
        phase=STARTED,
        expects=drill.drill.value,
        starts_at=timestamp(drill.starts_at),
        ends_at=timestamp(drill.ends_at),
        author=drill.author,
        comment=drill.comment,
        receivers=list(receivers),
        assessed=Source.FLINK_REST in policy.evidence,
        **envelope(policy, drill.drilled_cluster, now),
    )


def ended(policy: Policy, drill: RunningDrill, over: Moment, now: Moment) -> Drill:
    of, findings = drill.began, drill.findings
    result, reasons = judged(of, findings, over.wall, is_final=True)
    arrived = {name for name, message in findings.messages.items() if message.arrived}
    # One that could not see speaks for itself alone: its row does not stand for those of others.
    own = (policy.observer,) if result is Result.UNKNOWN else ()
    return replace(
        of,
        id=record_id("drill", of.cluster_id, of.drill_id, ENDED, *own),
        phase=ENDED,
        over_at=timestamp(over.wall),
        result=result.value,
        reasons=list(reasons),
        episode_id=None if findings.unproven else findings.episode_id,
        **figures(findings)._asdict(),
        recovery_verdict=findings.recovery.verdict if findings.recovery else None,
        delivered=[name for name in of.receivers if name in arrived],
        undelivered=[name for name in of.receivers if name not in arrived],
        hidden=findings.hidden_total,
        **envelope(policy, of.cluster_id, now),
    )
