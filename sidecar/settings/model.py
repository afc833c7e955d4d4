"""The settings, typed. Times are seconds here unless noted, and microseconds in the `Policy`."""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.policy.policy import ALL_FOUND, Destination, Feed, Heartbeat, Objective, Policy, Rule, Source, Store
from sidecar.core.policy.routing import InhibitRule, Route
from sidecar.core.policy.triggers import Need
from sidecar.net.endpoints import AppriseUrl, Endpoint
from sidecar.settings.cluster.stores import (
    AnyFinderSettings,
    ClusterSettings,
    FinderSettings,
    KubernetesSettings,
    session_timeouts,
)
from sidecar.settings.file.durations import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from sidecar.settings.file.key import Choice, Duration, Integer, Key, section_of
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting, host_name, listening_host, public_url, spool_place
from sidecar.settings.tls_and_sasl import TlsSettings

_PERCENT: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,4})?")


def _percent(setting: Setting) -> float:
    percent = float(setting.matching(_PERCENT, "a percentage like 99.9, with at most four decimals"))
    if not percent:
        raise setting.invalid("must be more than 0 and less than 100 percent")
    return percent


class SloKeys(Struct, frozen=True):
    """The keys of `slo`."""

    leadership: Annotated[float, Key(_percent)]
    """percent of the time: more than 0, less than 100, at most four decimals"""
    window: Annotated[int, Key(Duration(DAY, 90 * DAY), "30d")]
    """the time in which that is to hold"""


def read_objective(section: Section) -> Objective:
    return Objective(**section.values(SloKeys))


def _ha_check_interval(interval: Setting) -> float | None:
    """0 turns it off."""
    return None if interval.text == "0" else interval.duration(10 * MINUTE, 7 * DAY) / SECOND


class OwnPod(Struct, frozen=True):
    """The pod in which this sidecar runs, and its IP address."""

    name: str
    address: str
    uid: str | None = None


class SpoolSettings(Struct, frozen=True):
    """The place where segments are written, and when a segment is sealed."""

    place: Annotated[Path | str, Key(spool_place, "file:///var/spool/flink-ha-sidecar", "url")]
    """a folder, its `file://` URL, or a place in an object store (below)"""
    roll_interval: Annotated[float, Key(Duration(100 * MILLISECOND, unit=SECOND), "10s")]
    """a segment is sealed when its first record is this old"""
    roll_records: Annotated[int, Key(Integer(1, 1_000_000), "1000")]
    """or it has this many"""


class HttpSettings(Struct, frozen=True):
    """The address where metrics and health are served."""

    host: Annotated[str, Key(listening_host, "0.0.0.0")]  # noqa: S104  probes and Prometheus connect from outside the pod
    """the address to serve on. In a pod with IPv6, alone or beside IPv4, `"::"`: it serves both"""
    port: Annotated[int, Key(Integer(0, (1 << 16) - 1), "9250")]
    """0: any free one"""
    external_url: Annotated[str | None, Key(public_url)] = None
    """the public URL, for links in messages: `https://flink.example/ha`"""
    allowed_hosts: Annotated[frozenset[str], Key(host_name, many=frozenset)] = frozenset()
    """more host names by which it may be reached: `[ha.example.com]`; `*`: any"""

    @property
    def names(self) -> frozenset[str]:
        """`allowed_hosts`, our own host and that of `external_url`."""
        reached = urlsplit(self.external_url).hostname if self.external_url else None
        return self.allowed_hosts | {self.host.lower(), *([reached] if reached else [])}


class FlinkRestSettings(Struct, frozen=True):
    """How Flink's REST server is compared before and after a failover. Microseconds."""

    interval: Annotated[int, Key(Duration(2 * SECOND, 10 * MINUTE), "10s")] = 10 * SECOND
    """how often the leading REST server is asked. After failures down to every 5 minutes; while a recovery is assessed every second; a
    leader that [stops answering](rules.md#a-silent-leader) without a pause, for 30 s. With more than ten clusters so much longer, up to 5
    minutes"""
    patience: Annotated[int, Key(Duration(MINUTE, HOUR), "10m")] = 10 * MINUTE
    """how long a recovery is assessed after all components have a leader again"""


class EvidenceSettings(Struct, frozen=True):
    """The evidence that is captured at a failover, and where and how long its files are kept. `keep` is in seconds."""

    sources: Annotated[frozenset[Source], Key(Choice(Source), name="capture", many=frozenset)]
    """else nothing. `processes`: visible Flink processes; `flink_rest`: as without it; `leader_thread_dump`: of the leading JobManager, by
    its REST server"""
    folder: Annotated[Path, Key(name="dir")]
    """else `evidence` in `state_dir`. Not the folder of the state or of the spool, or one above them: old files are removed"""
    keep: Annotated[float, Key(Duration(HOUR, 365 * DAY, SECOND), "7d")]
    """how long a file is kept"""
    most_bytes: Annotated[int, Key(Integer(1, 100_000, unit=1_000_000), "200", "keep_megabytes")]
    """the limit of all files (million bytes): beyond it the oldest are removed, but never the last capture"""
    tls: Annotated[TlsSettings | None, Key(inside=(TlsSettings,))] = None
    """below"""
    flink_rest: Annotated[FlinkRestSettings, section_of(FlinkRestSettings, default="auto")] = FlinkRestSettings()
    """whether the leading REST server is asked, at the address that the leader publishes: `auto` or `never`; or the keys below"""
    log: Annotated[Path | None, Key(Setting.path)] = None
    """Flink's log, or its folder: the end is read [when the JobManager ends](../explanation/deaths.md#without-an-api). Takes
    `capture: [processes]`"""


class LedgerMode(StrEnum):
    """The way in which several sidecars notify once."""

    AUTO = "auto"
    STORE = "store"
    LOCAL = "local"


class LogFormat(StrEnum):
    """The format of a line of the log."""

    TEXT = "text"
    JSON = "json"


class SilenceSettings(Struct, frozen=True):
    """The bounds of silences. Microseconds."""

    longest: Annotated[int, Key(Duration(SECOND), "30d")]
    """the longest [silence](../how-to/silences.md). `silence add` refuses more; a sidecar ends a longer one by then. Changes need a
    restart"""


class _Ledger(Struct, frozen=True):
    mode: Annotated[LedgerMode, Key(Choice(LedgerMode), "auto")]
    """`auto`: the sidecars of a cluster [notify once](../explanation/one-voice.md); if the store refuses the ledger, each sends everything,
    and logs it. `store`: then messages wait 15 s and are labelled as possible duplicates. `local`: this sidecar notifies on its own,
    without a [handover](../explanation/handover.md)"""


class _Log(Struct, frozen=True):
    format: Annotated[LogFormat, Key(Choice(LogFormat), "text")]
    """`json`: an object a line: `at`, `level`, `logger`, `message`, and `error` of an exception. Lines before the configuration is read are
    text"""


class _HaCheck(Struct, frozen=True):
    interval: Annotated[float | None, Key(_ha_check_interval, "1h")]
    """how often; from `10m` to `7d`, or `0`: never. First some three minutes after the start"""


class Receiver(Struct, frozen=True):
    """Every endpoint gets each message; the resolved ones only if `send_resolved`."""

    name: str
    endpoints: tuple[Endpoint, ...]
    """The endpoints, those of `urls` first, in their order: deliveries that are queued name a destination by its index."""
    send_resolved: bool
    heartbeat: int | None = None
    """Microseconds between heartbeats. None: the receiver gets alerts and no heartbeats."""
    feed: Feed | None = None
    """None: it gets messages."""
    locations: tuple[str, ...] = ()
    """The place of each endpoint in the configuration."""

    def destinations(self) -> tuple[Destination, ...]:
        return tuple(
            Destination(
                self.name,
                index,
                self.send_resolved,
                endpoint.in_order,
                endpoint.keeps_incidents,
                self.feed,
                endpoint.service,
            )
            for index, endpoint in enumerate(self.endpoints)
        )


class Alerting(Struct, frozen=True, kw_only=True):
    """The rules, routes and receivers that decide which notification each receiver gets."""

    rules: tuple[Rule, ...]
    route: Route
    inhibit_rules: tuple[InhibitRule, ...]
    receivers: tuple[Receiver, ...]
    external_labels: dict[str, str]

    def policy_for(self, observer: str, stores: Mapping[str, Store]) -> Policy:
        return Policy(
            observer,
            stores,
            dict(self.external_labels),
            rules=self.rules,
            route=self.route,
            inhibit_rules=self.inhibit_rules,
            receivers={receiver.name: receiver.destinations() for receiver in self.receivers},
        )


class Settings(Alerting, frozen=True, kw_only=True):
    """The whole configuration of `run`."""

    clusters: tuple[ClusterSettings, ...]
    """The clusters, whose ids differ. At least one, unless clusters are found."""
    finder: AnyFinderSettings | None = None
    """None: only `clusters` are watched."""
    observer: Annotated[str, Key()]
    """the name of this sidecar: `POD_NAME`, else the host name. Letters, digits, `_`, `-`, `.`"""
    own_pod: OwnPod | None = None
    """None: not known."""
    external_labels: Annotated[dict[str, str], Key()]
    """labels of every record and alert: `{env: prod, region: eu}`. Not `alert`, `alertname`, `cluster_id`, `component`, `job_id`,
    `observer`, `severity`, `store`"""
    state_dir: Annotated[Path, Key(Setting.path, "/var/lib/flink-ha-sidecar")]
    """the journal's folder; it must survive a restart"""
    spool: Annotated[SpoolSettings, section_of(SpoolSettings)]
    ledger: Annotated[LedgerMode, section_of(_Ledger, "mode")]
    silences: Annotated[SilenceSettings, section_of(SilenceSettings)]
    trust_window: Annotated[float, Key(Duration(unit=SECOND), "3s")]
    log: Annotated[LogFormat, section_of(_Log, "format")]
    http: Annotated[HttpSettings, section_of(HttpSettings)]
    evidence: Annotated[EvidenceSettings, Key(inside=(EvidenceSettings,))]
    """without it, Flink's REST server alone is asked"""
    ha_check: Annotated[float | None, section_of(_HaCheck, "interval")]
    slo: Annotated[Objective | None, Key(read_objective, inside=(SloKeys,))] = None
    """without it, there is no objective"""
    objectives: Mapping[str, Objective] = {}
    """The objectives of clusters that have their own, by cluster."""
    files: tuple[Path, ...] = ()
    """The configuration and its rule files."""

    def policy(self) -> Policy:
        """The part of the settings that the core needs."""

        def those(has: Callable[[KubernetesSettings], bool]) -> frozenset[str]:
            kubernetes = (cluster for cluster in self.clusters if isinstance(cluster, KubernetesSettings))
            return frozenset(cluster.cluster_id for cluster in kubernetes if has(cluster))

        return replace(
            self.policy_for(self.observer, {cluster.cluster_id: cluster.store for cluster in self.clusters}),
            trust_window=round(self.trust_window * SECOND),
            heartbeats=tuple(
                Heartbeat(destination, receiver.heartbeat)
                for receiver in self.receivers
                if receiver.heartbeat is not None
                for destination in receiver.destinations()
            ),
            session_timeouts=session_timeouts(*self.clusters),
            link=self.http.external_url,
            places={cluster.cluster_id: cluster.identity for cluster in self.clusters},
            evidence=self.evidence.sources,
            picture_interval=self.evidence.flink_rest.interval,
            recovery_patience=self.evidence.flink_rest.patience,
            pod_names=those(lambda cluster: cluster.pod_names),
            plans=those(lambda cluster: cluster.plans),
            deaths=those(lambda cluster: cluster.deaths),
            events=those(lambda cluster: cluster.events),
            finds=self.finder.store if self.finder else None,
            silence_documents=self.silence_documents if self.receivers else frozenset(),
            longest_silence=self.silences.longest,
            objectives=self.objectives,
            objective=self.slo,
            lacks=frozenset(need for need, is_met in self._needs() if not is_met),
        )

    def _needs(self) -> Iterator[tuple[Need, bool]]:
        """The needs of triggers, each True if at least one cluster has it."""
        watched = (*self.clusters, *((self.finder,) if self.finder else ()))
        yield Need.ZOOKEEPER, any(cluster.store is Store.ZOOKEEPER for cluster in watched)
        yield Need.KUBERNETES, any(cluster.store is Store.KUBERNETES for cluster in watched)
        yield Need.FLINK_REST, Source.FLINK_REST in self.evidence.sources
        kubernetes = (cluster for cluster in watched if isinstance(cluster, KubernetesSettings | FinderSettings))
        yield Need.PLANS, any(cluster.plans for cluster in kubernetes)
        yield Need.HA_CHECK, bool(self.ha_check and self.clusters)
        yield Need.SHARED_STORE, bool(self.silence_documents)

    @property
    def silence_documents(self) -> frozenset[str]:
        """The names of the documents of silences, as in the policy: none if nothing is shared with other sidecars."""
        if self.ledger is LedgerMode.LOCAL:
            return frozenset()
        return frozenset({ALL_FOUND} if self.finder else {cluster.cluster_id for cluster in self.clusters})

    def identified(self, natives: Mapping[str, str]) -> Self:
        """The settings with the schemes of services' own URLs, by destination."""

        def endpoints(receiver: Receiver) -> Iterator[Endpoint]:
            for index, endpoint in enumerate(receiver.endpoints):
                native = natives.get(f"{receiver.name}#{index}")
                yield replace(endpoint, native=native) if native and isinstance(endpoint, AppriseUrl) else endpoint

        receivers = (replace(receiver, endpoints=tuple(endpoints(receiver))) for receiver in self.receivers)
        return replace(self, receivers=tuple(receivers))

    def locations(self) -> dict[str, str]:
        """The place of each destination's endpoint in the configuration."""
        return {
            destination.name: location
            for receiver in self.receivers
            for destination, location in zip(receiver.destinations(), receiver.locations, strict=True)
        }

    def endpoints(self) -> dict[str, Endpoint]:
        """The endpoint of every destination (`ops#0`), also of those that no route names now: deliveries for them may be queued."""
        return {
            destination.name: endpoint
            for receiver in self.receivers
            for destination, endpoint in zip(receiver.destinations(), receiver.endpoints, strict=True)
        }
