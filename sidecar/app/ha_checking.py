"""Checks whether high availability is real: reads the facts of clusters, once or again and again, and judges them."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.ha.finding import CheckVerdict, UnknownFact
from sidecar.core.ha.kubernetes_facts import KubernetesFacts
from sidecar.core.ha.results import CheckResult, results
from sidecar.core.ha.zookeeper_checks import ZooKeeperFacts
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.observations import HaChecked
from sidecar.core.pictures import Picture, PictureRequest
from sidecar.core.policy.policy import Source
from sidecar.core.policy.triggers import Need
from sidecar.core.sanitize import clean
from sidecar.drivers import ha_probe_of
from sidecar.net.rest_client import RestConnection, RestError
from sidecar.runtime.clock import Clock
from sidecar.runtime.threads import ServiceThread, jittered
from sidecar.settings import ClusterSettings, LedgerMode, Settings, SettingsError, TlsSettings
from sidecar.settings.cluster.flink_conf import read_flink_facts
from sidecar.sinks.pictures.described_cluster import DescribedCluster

if TYPE_CHECKING:
    from sidecar.drivers.kubernetes.deployment_probe import DeploymentProbe
    from sidecar.drivers.zookeeper.ensemble_probe import EnsembleProbe

FIRST_SECONDS: Final = 180.0
_AT_ONCE: Final = 4
"""Clusters: each probe waits more than it works."""
_STOP_SECONDS: Final = 1.0

_log = logging.getLogger("sidecar.ha")


class CheckedCluster(Struct, frozen=True, kw_only=True):
    """The results of all checks of one cluster."""

    cluster_id: str
    place: str
    """The place of the cluster's leaders."""
    checked_at: Timestamp
    checks: tuple[CheckResult, ...]

    def count(self, verdict: CheckVerdict) -> int:
        return sum(check.verdict is verdict for check in self.checks)


def check_all(settings: Settings) -> Sequence[CheckedCluster]:
    """The checks of every cluster of the configuration, in its order. Takes a minute at most for each four. Raises SettingsError."""
    if settings.finder:
        raise SettingsError(
            f"cannot check the clusters that are found in {settings.finder.place}: name one, with --cluster-id"
        )
    ledger, rest = settings.ledger is not LedgerMode.LOCAL, rest_settings(settings)

    def check(cluster: ClusterSettings) -> CheckedCluster:
        return CheckedCluster(
            cluster_id=cluster.cluster_id,
            place=cluster.place,
            checked_at=timestamp(_wall()),
            checks=_results(cluster, ha_probe_of(cluster, _wall, ledger=ledger), rest),
        )

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(check, settings.clusters))


def rest_settings(settings: Settings) -> TlsSettings | None:
    """The settings with which Flink's REST servers are asked. None: they are not asked."""
    return settings.evidence.tls or TlsSettings() if Source.FLINK_REST in settings.evidence.sources else None


class HaChecker:
    """Checks clusters one after the other, in a thread of its own. Each is checked soon after the start, and then once in each interval."""

    def __init__(
        self,
        clusters: Sequence[ClusterSettings],
        clock: Callable[[], Moment],
        *,
        interval: float | None,
        ledger: bool,
        rest: TlsSettings | None = None,
        first: float = FIRST_SECONDS,
    ) -> None:
        """`interval`: in seconds, None: never. `first`: after the start, when leaders are read and nothing else is urgent."""
        self._clusters = clusters if interval else ()
        self._clock = clock
        self._interval = interval or 0.0
        self._ledger = ledger
        self._rest = rest
        self._first = first
        self._observer: Callable[[HaChecked], None] | None = None
        self._stopping = threading.Event()
        self._probe: EnsembleProbe | DeploymentProbe | None = None
        self._thread = ServiceThread(self._work, "ha-checks")

    def start(self, observer: Callable[[HaChecked], None]) -> None:
        """Start the thread, if there is anything to check."""
        self._observer = observer
        if self._clusters:
            self._thread.start()

    def stop(self) -> None:
        """End soon. May be called twice, or before `start`."""
        self._stopping.set()
        if probe := self._probe:
            probe.stop()
        self._thread.join(_STOP_SECONDS)

    def _work(self) -> None:
        pause = self._first
        while not self._stopping.wait(jittered(pause)):
            for cluster in self._clusters:
                try:
                    self._check(cluster)
                except Exception:  # noqa: BLE001  what goes wrong with one cluster is not to end the checks of the others
                    _log.exception("the checks of cluster %s failed", cluster.cluster_id)
            pause = self._interval

    def _check(self, cluster: ClusterSettings) -> None:
        self._probe = ha_probe_of(cluster, _wall, ledger=self._ledger)
        results = _results(cluster, self._probe, self._rest)
        if self._observer and not self._stopping.is_set():  # else it was cut short
            self._observer(HaChecked(self._clock(), cluster.cluster_id, results))


def _results(
    cluster: ClusterSettings, probe: "EnsembleProbe | DeploymentProbe", rest: TlsSettings | None
) -> tuple[CheckResult, ...]:
    facts = probe.read()
    contenders = facts.contenders if isinstance(facts, ZooKeeperFacts) else None
    flink = read_flink_facts(cluster.flink_conf, contenders)
    return results(facts, replace(flink, picture=_picture(cluster.cluster_id, _rest_address(facts), rest)))


def _rest_address(facts: ZooKeeperFacts | KubernetesFacts) -> str | UnknownFact:
    if isinstance(facts, ZooKeeperFacts):
        return facts.rest_address
    return (
        facts.leaders if isinstance(facts.leaders, UnknownFact) else facts.leaders.rest_address if facts.leaders else ""
    )


def _picture(cluster_id: str, address: str | UnknownFact, rest: TlsSettings | None) -> Picture | UnknownFact:
    """The picture from the leading REST server, or why it is not known."""
    if rest is None:
        return UnknownFact(f"Flink's REST server is not asked: that takes {Need.FLINK_REST}")
    if isinstance(address, UnknownFact):
        return address
    if not address:
        return UnknownFact("no REST server leads that could be asked")
    try:
        described = DescribedCluster(address, RestConnection(address, rest.context), Clock())
        try:
            return described.picture(PictureRequest(cluster_id, address))
        finally:
            described.close()
    except (RestError, ValueError) as error:
        return UnknownFact(clean(error))


def _wall() -> int:
    return time.time_ns() // 1000
