"""The checks of high availability of one cluster: their last results, and what is recorded of them."""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.draft import ClusterStep, Happened
from sidecar.core.cluster.records.record_writer import envelope
from sidecar.core.cluster.state import ClusterState
from sidecar.core.ha.finding import Verdict
from sidecar.core.ha.results import Checked, CheckResult, KnownCheck
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.observations import HaChecked
from sidecar.core.policy.policy import Policy
from sidecar.core.records import HaCheck, record_id

RECORD_INTERVAL: Final = 86_400 * SECOND
"""How often an unchanged result is recorded."""


def observe(policy: Policy, name: str, cluster: ClusterState, observation: HaChecked) -> ClusterStep:
    """The cluster after its checks. Recorded are verdicts that changed, and each result once a day."""
    before = cluster.readiness.checks if cluster.readiness else {}
    checks: dict[str, KnownCheck] = {}
    records: list[Happened] = []
    for result in observation.results:
        check, last = result.check, before.get(result.check)
        checks[check] = _check_after(last, result, observation.at)
        if last is None or checks[check].recorded_at != last.recorded_at:
            records.append(_record(policy, name, checks[check], last, observation.at))
    return replace(cluster, readiness=Checked(observation.at, checks)), records


def _check_after(last: KnownCheck | None, result: CheckResult, at: Moment) -> KnownCheck:
    """The known state of a check after its result."""
    same = last is not None and last.result.verdict is result.verdict
    due = not same or last is None or at.steady - last.recorded_at.steady >= RECORD_INTERVAL
    risk_since = last.risk_since if last else None
    match result.verdict:
        case Verdict.PASS:
            risk_since = None
        case Verdict.RISK:
            risk_since = risk_since or at
    return KnownCheck(
        result,
        since=last.since if last and same else at,
        recorded_at=at if last is None or due else last.recorded_at,
        risk_since=risk_since,
    )


def _record(policy: Policy, name: str, check: KnownCheck, before: KnownCheck | None, at: Moment) -> HaCheck:
    result = check.result
    return HaCheck(
        id=record_id("ha_check", policy.observer, name, result.check, timestamp(at.wall)),
        **envelope(policy, name, at),
        check_name=result.check,
        verdict=result.verdict.value,
        verdict_before=before.result.verdict.value if before else None,
        since=timestamp(check.since.wall),
        finding=result.text,
        advice=result.advice or None,
    )
