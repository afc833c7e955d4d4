"""The objective for leadership of each cluster and what is left of its error budget, as the page and the API show them."""

from collections.abc import Sequence

from msgspec import Struct

from sidecar.core.cluster import error_budget
from sidecar.core.cluster.error_budget import PACES
from sidecar.core.moment import in_seconds
from sidecar.core.views.snapshot import Snapshot


class SloView(Struct, frozen=True):
    """One cluster with an objective. Led, vacant, suspended and unobserved add up to the part of the window since the account began."""

    cluster_id: str
    objective: float
    """Percent of the time in which the cluster is to be led."""
    window_seconds: float
    led_seconds: float
    """Of the window that ends now. Likewise the next three."""
    vacant_seconds: float
    suspended_seconds: float
    """Without a leader while the FlinkDeployment was suspended or deleted: it spends no budget."""
    unobserved_seconds: float
    """It earns no budget, and spends none."""
    budget_seconds: float
    """Vacant seconds that the objective allows in the window without its unobserved and suspended parts."""
    remaining: float | None
    """The part of the budget that is left; below 0: overspent. Null: there is none."""
    burn_rates: dict[str, float]
    """How many times faster than allowed the budget was spent in the last `1h`, `6h` and `3d`."""
    burns: bool
    """Whether it is spent too fast, over a window and still now."""

    @property
    def unobserved(self) -> float:
        """The unobserved part of the time since the account began."""
        elapsed = self.led_seconds + self.vacant_seconds + self.suspended_seconds + self.unobserved_seconds
        return self.unobserved_seconds / elapsed if elapsed else 0.0


_NAMES = dict(zip(PACES, ("1h", "6h", "3d"), strict=True))


def slos(snapshot: Snapshot, *cluster_ids: str) -> Sequence[SloView]:
    """The objectives of these clusters, without any of all."""
    return [view for name in cluster_ids or sorted(snapshot.state.clusters) if (view := _slo(snapshot, name))]


def _slo(snapshot: Snapshot, name: str) -> SloView | None:
    cluster, objective, at = snapshot.state.clusters[name], snapshot.policy.objective_of(name), snapshot.at
    if objective is None:
        return None
    budget = error_budget.budget(cluster, objective, at)
    lasted = budget.lasted
    return SloView(
        name,
        objective.leadership,
        in_seconds(objective.window),
        in_seconds(lasted.led),
        in_seconds(lasted.vacant),
        in_seconds(lasted.suspended),
        in_seconds(lasted.unobserved),
        in_seconds(budget.allowed),
        budget.remaining,
        {short: error_budget.burn_rate(cluster, objective, at, window) for window, short in _NAMES.items()},
        bool(cluster.burning),
    )
