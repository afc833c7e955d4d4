"""Replays ZooKeeper's transactions, in the format of tests/fixtures, as a driver observes them that is always connected."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace

from sidecar.core.delivery.outbox import Delivery
from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import ZNodePosition
from sidecar.core.moment import Moment, timestamp
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    NodeObserved,
    Observation,
    PlaceRemoved,
    SnapshotCompleted,
    Started,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.policy.routing import every
from sidecar.core.records import EpisodeRecord
from sidecar.settings.model import Alerting
from sidecar.simulation.record_files import NO_RECORD, lines
from sidecar.simulation.replay_records import ReplayedNotification
from sidecar.simulation.simulator import TICK, Simulator

_FAR: Final = 30 * 24 * 3600 * 1000
"""Milliseconds. A transaction this long after the previous one has a wrong time."""
_NAMESPACE: Final = re.compile(r"/[^/]+/(.+?)/(?:leader|leaderlatch|jobgraphs|execution-plans|jobs)(?:/|$)")


class Operation(Struct):
    """One change of a transaction."""

    op: str
    path: str = ""
    hex: str | None = None
    ephemeral: bool = False
    version: int = 0
    deleted: list[str] = []
    ops: "list[Operation]" = []


class Transaction(Operation, kw_only=True):
    """One line of the log."""

    zxid: str
    t_ms: int
    session: str = "0x0"


def clusters_of(transaction: Transaction) -> Iterator[str]:
    """The ids of the Flink clusters whose paths a transaction changes."""
    for operation in (transaction, *transaction.ops):
        for path in (operation.path, *operation.deleted):
            if match := _NAMESPACE.match(path):
                yield match[1]


class LoggedCluster:
    """The nodes of one Flink cluster that a driver observes."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._prefix = re.compile(rf"/[^/]+/{re.escape(cluster_id)}(?=/)")
        self._nodes: dict[str, tuple[bytes, ZNodePosition]] = {}
        self._lists: dict[str, dict[str, None]] = {store: {} for store in znode_paths.JOB_STORES}

    def connect(self, at: Moment) -> Iterator[ClusterObservation]:
        """The observations of a driver that connects to an empty cluster."""
        yield ViewObserved(at, self._cluster_id, ConnectionState.CONNECTED)
        yield SnapshotCompleted(at, self._cluster_id)

    def apply(self, transaction: Transaction, at: Moment) -> Iterator[ClusterObservation]:
        """Apply a transaction; a driver's observations of it."""
        for operation in (transaction, *transaction.ops):
            for full in (operation.path, *operation.deleted):
                if match := self._prefix.match(full):
                    yield from self._change(full[match.end() :], operation, transaction, at)

    def _change(
        self, path: str, operation: Operation, transaction: Transaction, at: Moment
    ) -> Iterator[ClusterObservation]:
        zxid, session = int(transaction.zxid, 16), int(transaction.session, 16)
        gone = operation.op in {"delete", "deleteContainer", "closeSession"}
        if znode_paths.component_of(path):
            old = self._nodes.pop(path, None)
            if operation.op == "setData" and old:
                czxid, owner = old[1].czxid, old[1].ephemeral_owner
                position = ZNodePosition(path, czxid, zxid, operation.version, owner, transaction.t_ms)
            else:
                position = ZNodePosition(path, zxid, zxid, 0, session if operation.ephemeral else 0, transaction.t_ms)
            if not gone:
                self._nodes[path] = (bytes.fromhex(operation.hex or ""), position)
            data, place = self._nodes.get(path, (b"", None))
            yield NodeObserved(at, self._cluster_id, path, data, place, writes=1)
            return
        parent, _, name = path.rpartition("/")
        if znode_paths.is_list(parent):
            names = self._lists.setdefault(parent, {})
            if gone:
                names.pop(name, None)
            elif operation.op != "setData":
                names[name] = None
            yield ChildrenObserved(at, self._cluster_id, parent, tuple(sorted(names)))
        elif gone and znode_paths.component_of(f"{path}/connection_info"):
            yield PlaceRemoved(at, self._cluster_id, f"{path}/connection_info")


class TransactionReplay:
    """The rules, fed with the transactions in `files`. Raises ReplayError."""

    def __init__(
        self, files: Sequence[Path], alerting: Alerting, observer: str | None, like: Policy | None = None
    ) -> None:
        """`like`: the policy whose links and places messages have."""
        self._files = files
        self.unreadable = 0
        """Lines that are not transactions; final after `notifications`."""
        clusters = {name: None for transaction in self._read() for name in clusters_of(transaction)}
        policy = alerting.policy_for(observer or "replay", dict.fromkeys(clusters, Store.ZOOKEEPER))
        self._policy = replace(policy, link=like.link, places=like.places) if like else policy

    def episodes(self) -> dict[str, EpisodeRecord | None]:
        """The ids of the failovers that are notified, in the order of time; there are no records of them. Raises ReplayError."""
        return dict.fromkeys(delivery.episode_id for delivery in self.deliveries() if delivery.episode_id)

    def deliveries(self) -> Iterator[Delivery]:
        """The deliveries up to a moment after the last transaction, in the order of time. Raises ReplayError."""
        yield from Simulator(self._policy).observe(self._observations())

    def notifications(self) -> Iterator[ReplayedNotification]:
        """As `deliveries`, in short."""
        for delivery in self.deliveries():
            at, alerts = timestamp(delivery.queued_at.wall), delivery.alert.split(", ")
            receiver, reason = delivery.receiver, delivery.reason.value
            yield ReplayedNotification(at, delivery.cluster_id, receiver, reason, alerts, delivery.title)

    def _observations(self) -> Iterator[Observation]:
        clusters = [LoggedCluster(name) for name in self._policy.stores]
        now = 0
        for transaction in self._read():
            at = transaction.t_ms * 1000
            if not now:
                now = at
                yield Started(Moment(at, at))
                for cluster in clusters:
                    yield from cluster.connect(Moment(at, at))
            for tick in range(now + TICK, max(now, at) + 1, TICK):
                now = tick
                yield Ticked(Moment(tick, tick))
            moment = Moment(max(now, at), max(now, at))
            for cluster in clusters:
                yield from cluster.apply(transaction, moment)
        wait = max(route.group_wait for route in every(self._policy.route))
        for tick in range(now + TICK, now + wait + 3 * TICK, TICK):
            yield Ticked(Moment(tick, tick))

    def _read(self) -> Iterator[Transaction]:
        decoder = json.Decoder(Transaction)
        self.unreadable = 0
        latest = 0
        for line in lines(self._files):
            try:
                transaction = decoder.decode(line)
                int(transaction.zxid, 16), int(transaction.session, 16)
                for operation in (transaction, *transaction.ops):
                    bytes.fromhex(operation.hex or "")
                if latest and transaction.t_ms - latest > _FAR:
                    raise ValueError("out of time")
            except NO_RECORD:
                self.unreadable += 1
                continue
            latest = max(latest, transaction.t_ms)
            yield transaction


def are_transactions(files: Sequence[Path]) -> bool:
    """Whether one of the first ten lines is a transaction. Raises ReplayError."""
    decoder = json.Decoder(Transaction)
    for line in islice(lines(files), 10):
        with suppress(*NO_RECORD):
            decoder.decode(line)
            return True
    return False
