"""Keeps the account of a cluster's leadership (`leadership_account`): what each moment counts as, and until when that is final."""

from msgspec.structs import replace

from sidecar.core.cluster.leadership_account import Standing, changed, opened
from sidecar.core.cluster.state import ClusterState, Sighting
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Held, Vacant
from sidecar.core.moment import Moment


def standing(cluster: ClusterState) -> Standing:
    """How the current moment counts in the account of leadership."""
    if cluster.view.sighting is Sighting.BLIND:
        return Standing.UNOBSERVED
    own = [
        state.leadership if (state := cluster.components.get(component)) else None for component in CLUSTER_COMPONENTS
    ]
    if any(isinstance(leadership, Vacant) for leadership in own):
        return Standing.SUSPENDED if cluster.view.suspended else Standing.VACANT
    return Standing.LED if all(isinstance(leadership, Held) for leadership in own) else Standing.UNOBSERVED


def accounted(before: ClusterState | None, after: ClusterState, alive: Moment | None, at: Moment) -> ClusterState:
    """`after` with its account, when the step from `before` is done. `alive`: until then a restart takes this sidecar to have run."""
    account, now = after.account or opened(at.steady), standing(after)
    turned = before is not None and before.view.sighting is not after.view.sighting
    is_blind = after.view.sighting is Sighting.BLIND
    if now is not account.now or (turned and is_blind):
        # Blind since the end of what was covered, which may be earlier than now.
        since = after.view.since.steady if is_blind else at.steady
        account = changed(account, now, since, final_until(after, alive, at))
    return after if account is after.account else replace(after, account=account)


def final_until(cluster: ClusterState, alive: Moment | None, now: Moment) -> int:
    """Until when (steady) the account is final: a view that is not confirmed in time will have been blind since its last confirmation, and
    a sidecar that is killed will have ended when it was last known to run.
    """
    until = alive.steady if alive else now.steady
    if cluster.view.sighting is Sighting.BLIND:
        return until
    return min(until, cluster.confirmed.at.steady if cluster.confirmed else cluster.view.since.steady)
