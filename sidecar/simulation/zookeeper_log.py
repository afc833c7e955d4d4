"""ZooKeeper's own transactions, as tests/fixtures has them: what a driver would have observed that was connected all the time."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct, json

from sidecar.core.delivery.outbox import Delivery
from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import ZNodePosition
from sidecar.core.moment import Moment, timestamp
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    NodeObserved,
    PlaceRemoved,
    SnapshotCompleted,
    Started,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy.policy import Store
from sidecar.core.policy.routing import every
from sidecar.settings.model import Alerting
from sidecar.simulation.record_files import NO_RECORD, lines
from sidecar.simulation.replay_records import ReplayedNotification
from sidecar.simulation.simulator import TICK, Voice

_FAR: Final = 30 * 24 * 3600 * 1000
"""Milliseconds. A transaction so long after the one before it has a wrong time."""
_NAMESPACE: Final = re.compile(r"/[^/]+/(.+?)/(?:leader|leaderlatch|jobgraphs|execution-plans|jobs)(?:/|$)")


class Operation(Struct):
    """One of the changes that a transaction makes."""

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
    """The ids of the Flink clusters whose paths it touches."""
    for operation in (transaction, *transaction.ops):
        for path in (operation.path, *operation.deleted):
            if match := _NAMESPACE.match(path):
                yield match[1]


class Recorded:
    """What one Flink cluster keeps in ZooKeeper, as far as anybody looks."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._prefix = re.compile(rf"/[^/]+/{re.escape(cluster_id)}(?=/)")
        self._nodes: dict[str, tuple[bytes, ZNodePosition]] = {}
        self._lists: dict[str, dict[str, None]] = {store: {} for store in znode_paths.JOB_STORES}

    def begins(self, at: Moment) -> Iterator[ClusterObservation]:
        """The driver connects, and there is nothing yet."""
        yield ViewObserved(at, self._cluster_id, ConnectionState.CONNECTED)
        yield SnapshotCompleted(at, self._cluster_id)

    def takes(self, transaction: Transaction, at: Moment) -> Iterator[ClusterObservation]:
        """What a driver hears of a transaction."""
        zxid, session = int(transaction.zxid, 16), int(transaction.session, 16)
        for operation in (transaction, *transaction.ops):
            for full in (operation.path, *operation.deleted):
                if match := self._prefix.match(full):
                    yield from self._touched(full[match.end() :], operation, zxid, session, transaction.t_ms, at)

    def _touched(
        self, path: str, operation: Operation, zxid: int, session: int, mtime: int, at: Moment
    ) -> Iterator[ClusterObservation]:
        gone = operation.op in {"delete", "deleteContainer", "closeSession"}
        if znode_paths.component_of(path):
            old = self._nodes.pop(path, None)
            if operation.op == "setData" and old:
                czxid, owner = old[1].czxid, old[1].ephemeral_owner
                position = ZNodePosition(path, czxid, zxid, operation.version, owner, mtime)
            else:
                position = ZNodePosition(path, zxid, zxid, 0, session if operation.ephemeral else 0, mtime)
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


class Transactions:
    """The transactions in `files`, one after the other."""

    def __init__(self, files: Sequence[Path], rules: Alerting, observer: str | None) -> None:
        self._files = files
        self.unreadable = 0
        """Lines that are no transactions, counted when they are read."""
        clusters = {name: None for transaction in self._read() for name in clusters_of(transaction)}
        self._policy = rules.policy_for(observer or "replay", dict.fromkeys(clusters, Store.ZOOKEEPER))

    def tellings(self) -> Iterator[ReplayedNotification]:
        """What would have been told, in the order of time; also for a moment behind the last transaction. Raises ReplayError."""
        voice = Voice(self._policy)
        clusters = [Recorded(name) for name in self._policy.stores]
        now = 0
        for transaction in self._read():
            at = transaction.t_ms * 1000
            if not now:
                now = at
                began = [seen for cluster in clusters for seen in cluster.begins(Moment(at, at))]
                yield from map(_telling, voice.hears([Started(Moment(at, at)), *began]))
            for tick in range(now + TICK, max(now, at) + 1, TICK):
                now = tick
                yield from map(_telling, voice.hears([Ticked(Moment(tick, tick))]))
            moment = Moment(max(now, at), max(now, at))
            for cluster in clusters:
                yield from map(_telling, voice.hears(cluster.takes(transaction, moment)))
        wait = max(route.group_wait for route in every(self._policy.route))
        for tick in range(now + TICK, now + wait + 3 * TICK, TICK):
            yield from map(_telling, voice.hears([Ticked(Moment(tick, tick))]))

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
    """Whether the first line that can be read is one. Raises ReplayError."""
    decoder = json.Decoder(Transaction)
    for line in islice(lines(files), 10):
        try:
            decoder.decode(line)
        except NO_RECORD:
            continue
        return True
    return False


def _telling(delivery: Delivery) -> ReplayedNotification:
    at, alerts = timestamp(delivery.queued_at.wall), delivery.alert.split(", ")
    return ReplayedNotification(
        at, delivery.cluster_id, delivery.receiver, delivery.reason.value, alerts, delivery.title
    )
