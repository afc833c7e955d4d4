"""Checks whether high availability is real: reads the facts of clusters once, and judges them."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec import Struct

from sidecar.core.ha.finding import Verdict
from sidecar.core.ha.results import CheckResult, results
from sidecar.core.ha.zookeeper_facts import ZooKeeperFacts
from sidecar.core.moment import Timestamp, timestamp
from sidecar.drivers import ha_probe_of
from sidecar.settings import ClusterSettings, LedgerMode, Settings, SettingsError
from sidecar.settings.cluster.flink_facts import read_flink_facts

_AT_ONCE: Final = 4
"""Clusters: each probe waits more than it works."""


class CheckedCluster(Struct, frozen=True, kw_only=True):
    """What all checks found about one cluster."""

    cluster_id: str
    place: str
    """Where its leaders are."""
    checked_at: Timestamp
    checks: tuple[CheckResult, ...]

    def count(self, verdict: Verdict) -> int:
        """How many checks have it."""
        return sum(check.verdict is verdict for check in self.checks)


def check_all(settings: Settings) -> Sequence[CheckedCluster]:
    """The checks of every cluster of the configuration, in its order. Takes a minute at most for each four. Raises SettingsError."""
    if settings.finder:
        raise SettingsError(
            f"cannot check the clusters that are found in {settings.finder.place}: name one, with --cluster-id"
        )
    ledger = settings.ledger is not LedgerMode.LOCAL
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda cluster: check(cluster, ledger=ledger), settings.clusters))


def check(cluster: ClusterSettings, *, ledger: bool) -> CheckedCluster:
    """The checks of one cluster. `ledger`: whether sidecars share documents in its store."""
    facts = ha_probe_of(cluster, _wall, ledger=ledger).read()
    contenders = facts.contenders if isinstance(facts, ZooKeeperFacts) else None
    return CheckedCluster(
        cluster_id=cluster.cluster_id,
        place=cluster.place,
        checked_at=timestamp(facts.read_at),
        checks=results(facts, read_flink_facts(cluster.flink_conf, contenders)),
    )


def _wall() -> int:
    return time.time_ns() // 1000
