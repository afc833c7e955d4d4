"""The error budget of leadership: how much time without a leader an objective allows, how much of it is spent, and how fast.

Unobserved and suspended time is never good: it earns no budget. Nor is it bad: a burn rate is that of the vacant time alone. Windows and
factors are those of "Alerting on SLOs" in Google's SRE workbook.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster.leadership_account import (
    HOUR,
    MINUTE,
    Lasted,
    Standing,
    changed,
    opened,
    vacant_within,
    within,
)
from sidecar.core.cluster.state import ClusterState, Sighting
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Held, Vacant
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Objective, Policy


class Pace(Struct, frozen=True):
    """Two windows in which the budget burns faster than `factor`: the short one says that it still does."""

    long: int
    short: int
    factor: float


PACES: Final = {
    pace.long: pace
    for pace in (
        Pace(HOUR, 5 * MINUTE, 14.4),
        Pace(6 * HOUR, 30 * MINUTE, 6.0),
        Pace(72 * HOUR, 6 * HOUR, 1.0),
    )
}
"""By the long window."""


class Budget(Struct, frozen=True):
    """The error budget of one cluster (microseconds)."""

    lasted: Lasted
    """The parts of the window."""
    allowed: int
    """Vacant time that the objective allows: its share of the window without its unobserved and suspended parts."""

    @property
    def remaining(self) -> float | None:
        """The part that is left; below 0: overspent. None: all of the window is unobserved or suspended."""
        return 1 - self.lasted.vacant / self.allowed if self.allowed else None


def standing(cluster: ClusterState) -> Standing:
    """What the current moment counts as."""
    if cluster.view.sighting is Sighting.BLIND:
        return Standing.UNOBSERVED
    own = [
        state.leadership if (state := cluster.components.get(component)) else None for component in CLUSTER_COMPONENTS
    ]
    if any(isinstance(leadership, Vacant) for leadership in own):
        return Standing.SUSPENDED if cluster.view.suspended else Standing.VACANT
    return Standing.LED if all(isinstance(leadership, Held) for leadership in own) else Standing.UNOBSERVED


def accounted(
    policy: Policy, cluster_id: str, before: ClusterState | None, after: ClusterState, alive: Moment | None, at: Moment
) -> ClusterState:
    """`after` with its account, when the step from `before` is done. `alive`: until then a restart takes this sidecar to have run."""
    account, now = after.account or opened(at.steady), standing(after)
    turned = before is not None and before.view.sighting is not after.view.sighting
    is_blind = after.view.sighting is Sighting.BLIND
    if now is not account.now or (turned and is_blind):
        # Blind since the end of what was covered, which may be earlier than now.
        since = after.view.since.steady if is_blind else at.steady
        account = changed(account, now, since, final_until(after, alive, at))
    if account is after.account:
        return after
    after = replace(after, account=account)
    return replace(after, burning=_burning(policy.objective_of(cluster_id), after, at))


def final_until(cluster: ClusterState, alive: Moment | None, now: Moment) -> int:
    """Until when (steady) the account is final: a view that is not confirmed in time will have been blind since its last confirmation, and
    a sidecar that is killed will have ended when it was last known to run.
    """
    until = alive.steady if alive else now.steady
    if cluster.view.sighting is Sighting.BLIND:
        return until
    return min(until, cluster.confirmed.at.steady if cluster.confirmed else cluster.view.since.steady)


def budget(cluster: ClusterState, objective: Objective, now: Moment) -> Budget:
    """The budget of the objective's window that ends now."""
    lasted = within(cluster.account or opened(now.steady), now.steady, objective.window)
    return Budget(lasted, objective.allowed(objective.window - lasted.unobserved - lasted.suspended))


def burn_rate(cluster: ClusterState, objective: Objective, now: Moment, window: int) -> float:
    """How many times faster than allowed the budget was spent in the last `window`: 1 spends all of it in the objective's window."""
    spent = vacant_within(cluster.account, now.steady, window) if cluster.account else 0
    return spent / objective.allowed(window)


def burning(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> tuple[int, ...]:
    """The paces (long windows) at which the budget burns now: `cluster.burning` itself if that is known without computing it."""
    objective = policy.objective_of(cluster_id)
    if objective and cluster.leaders_in_sight:
        if cluster.burning or (cluster.account and cluster.account.now is Standing.VACANT):
            current = _burning(objective, cluster, now)
            return cluster.burning if current == cluster.burning else current
        return cluster.burning
    return cluster.burning if objective else ()


def _burning(objective: Objective | None, cluster: ClusterState, now: Moment) -> tuple[int, ...]:
    if objective is None:
        return ()
    return tuple(
        pace.long
        for pace in PACES.values()
        if pace.long <= objective.window
        and all(burn_rate(cluster, objective, now, window) >= pace.factor for window in (pace.short, pace.long))
    )
