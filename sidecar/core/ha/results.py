"""The checks for a cluster, with THE table of those over Kubernetes' facts, and their results."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, assert_never

from msgspec import Struct

from sidecar.core.ha import config_map_checks, pod_checks
from sidecar.core.ha.finding import CheckVerdict, Finding, unknown
from sidecar.core.ha.flink_checks import FLINK_CHECKS, FlinkFacts
from sidecar.core.ha.kubernetes_facts import KubernetesFacts, with_pods
from sidecar.core.ha.zookeeper_checks import ZOOKEEPER_CHECKS, ZooKeeperFacts
from sidecar.core.moment import SECOND, Moment
from sidecar.core.sanitize import clean

KUBERNETES_CHECKS: Final[Mapping[str, Callable[[KubernetesFacts], Finding]]] = {
    "standby": pod_checks.standby,
    "node_spread": pod_checks.node_spread,
    "disruption_budget": pod_checks.disruption_budget,
    "liveness_probe": pod_checks.liveness_probe,
    "restart_policy": pod_checks.restart_policy,
    "memory_limit": pod_checks.memory_limit,
    "flink_versions": pod_checks.flink_versions,
    "lease_margin": config_map_checks.lease_margin,
    "erased_leaders": config_map_checks.erased_leaders,
    "config_map_size": config_map_checks.config_map_size,
    "sidecar_rights": config_map_checks.sidecar_rights,
    "flink_rights": config_map_checks.flink_rights,
    "leftover_clusters": config_map_checks.leftover_clusters,
    "leftover_jobs": config_map_checks.leftover_jobs,
}
"""Each judges the facts of one moment."""


CHECKS: Final = tuple(dict.fromkeys((*ZOOKEEPER_CHECKS, *KUBERNETES_CHECKS, *FLINK_CHECKS)))
"""The names of all checks: what alerts, records and metrics call them."""
_LONGEST: Final = 1000
"""Characters of a line."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """The result of one check of one cluster."""

    check: str
    verdict: CheckVerdict
    text: str
    """The facts, or what is missing, in one line."""
    advice: str = ""
    """The remedy for a RISK."""


class KnownCheck(Struct, frozen=True):
    """The known result of one check."""

    result: CheckResult
    since: Moment
    """Since when the check has this verdict, as far as this sidecar knows."""
    recorded_at: Moment
    """When the result was last recorded."""
    risk_since: Moment | None = None
    """Since when the check is a RISK that has not passed since: a check that cannot be read any more may still be one."""


RECORD_INTERVAL: Final = 86_400 * SECOND
"""How often an unchanged result is recorded."""


def known(last: KnownCheck | None, result: CheckResult, at: Moment) -> KnownCheck:
    """The known state of a check after its result. Recorded are verdicts that changed, and each result once a day."""
    same = last is not None and last.result.verdict is result.verdict
    due = not same or last is None or at.steady - last.recorded_at.steady >= RECORD_INTERVAL
    risk_since = last.risk_since if last else None
    match result.verdict:
        case CheckVerdict.PASS:
            risk_since = None
        case CheckVerdict.RISK:
            risk_since = risk_since or at
    return KnownCheck(
        result,
        since=last.since if last and same else at,
        recorded_at=at if last is None or due else last.recorded_at,
        risk_since=risk_since,
    )


class Checked(Struct, frozen=True):
    """All checks of one cluster."""

    at: Moment
    checks: Mapping[str, KnownCheck] = {}
    """The checks by name, in the order in which they are shown."""


def results(store: ZooKeeperFacts | KubernetesFacts, flink: FlinkFacts) -> tuple[CheckResult, ...]:
    match store:
        case ZooKeeperFacts():
            of_store = _results(ZOOKEEPER_CHECKS, store)
        case KubernetesFacts():
            of_store, flink = _results(KUBERNETES_CHECKS, store), with_pods(flink, store)
        case _:
            assert_never(store)
    return (*of_store, *_results(FLINK_CHECKS, flink))


def _results(checks: Mapping[str, Callable[[Any], Finding | None]], facts: object) -> Iterator[CheckResult]:
    for name, check in checks.items():
        if finding := _finding(check, facts):
            text, advice = clean(finding.text, _LONGEST), clean(finding.advice, _LONGEST)
            yield CheckResult(check=name, verdict=finding.verdict, text=text, advice=advice)


def _finding(check: Callable[[Any], Finding | None], facts: object) -> Finding | None:
    """UNKNOWN of a check that raises: the others go on."""
    try:
        return check(facts)
    except Exception as error:  # noqa: BLE001  the facts are others'
        return unknown(f"the check failed: {type(error).__name__}; please report this bug")
