"""Recordings of real Flink clusters: trees, transaction logs, and what Flink's own listeners were notified of."""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import ZNodePosition
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    NodeObserved,
    PlaceRemoved,
    SnapshotCompleted,
    ViewObserved,
)
from tests import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "zookeeper"
NAMESPACE = "/flink/default"
VERSIONS = ("1.13.6", "1.14.6", "1.20.5", "2.3.0")
TRANSACTIONS = "zk-txnlog.jsonl"
"""The name of a transaction log in the folder of its version: not all versions have one."""
MOMENTS = (
    "02-job-running",
    "03-i-just-after-kill9",
    "04-i-new-leader",
    "05-i-old-restarted-as-standby",
    "06-iii-after-sigterm",
)


@dataclass(frozen=True)
class ZNode:
    """One znode: `data` is None where the recording left it out."""

    data: bytes | None
    position: ZNodePosition


@dataclass
class Tree:
    """Znodes by path, relative to the namespace."""

    nodes: dict[str, ZNode] = field(default_factory=dict)

    def children(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(p.removeprefix(path + "/") for p in self.nodes if p.rpartition("/")[0] == path))

    def leaders(self) -> Mapping[str, ZNode]:
        """The znodes that hold leader information: of all others the recordings keep no data."""
        return {path: node for path, node in self.nodes.items() if node.data}


@cache
def tree(version: str, moment: str) -> Tree:
    recorded = json.loads((FOLDER / version / f"tree-{moment}.json").read_text())
    znodes = Tree()
    for node in recorded["nodes"]:
        if node["path"].startswith(NAMESPACE + "/"):
            path, stat = node["path"].removeprefix(NAMESPACE), node["stat"]
            data = None if node["data_hex"] is None else bytes.fromhex(node["data_hex"])
            znodes.nodes[path] = ZNode(
                data,
                ZNodePosition(
                    path, stat["czxid"], stat["mzxid"], stat["version"], stat["ephemeralOwner"], stat["mtime"]
                ),
            )
    return znodes


def histories() -> tuple[str, ...]:
    """The versions of Flink of which there is a transaction log."""
    return tuple(sorted(log.parent.name for log in FOLDER.glob(f"*/{TRANSACTIONS}")))


@cache
def transactions(version: str) -> tuple[dict[str, Any], ...]:
    """Everything that was done to the ZooKeeper of that cluster, in order."""
    return tuple(json.loads(line) for line in (FOLDER / version / TRANSACTIONS).read_text().splitlines())


@dataclass(frozen=True)
class Transaction:
    """One transaction that was applied: when, and which paths it touched."""

    micros: int
    paths: tuple[str, ...]


def replay(version: str, into: Tree) -> Iterator[Transaction]:
    """Apply the recorded transactions to `into`, one at each step."""
    for entry in transactions(version):
        zxid = int(entry["zxid"], 16)
        paths = [path for op in (entry, *entry.get("ops", ())) for path in _apply(into, op, entry, zxid)]
        yield Transaction(entry["t_ms"] * 1000, tuple(paths))


def _apply(into: Tree, op: dict[str, Any], entry: dict[str, Any], zxid: int) -> list[str]:
    path = op.get("path", "").removeprefix(NAMESPACE)
    match op["op"]:
        case "create" | "create2" | "createContainer":
            owner = int(entry["session"], 16) if op.get("ephemeral") else 0
            into.nodes[path] = ZNode(_data(op), ZNodePosition(path, zxid, zxid, 0, owner, entry["t_ms"]))
            return [path]
        case "setData":
            old = into.nodes[path].position
            into.nodes[path] = ZNode(
                _data(op), ZNodePosition(path, old.czxid, zxid, op["version"], old.ephemeral_owner, entry["t_ms"])
            )
            return [path]
        case "delete":
            del into.nodes[path]
            return [path]
        case "closeSession":
            gone = [deleted.removeprefix(NAMESPACE) for deleted in op["deleted"]]
            for deleted in gone:
                del into.nodes[deleted]
            return gone
    return []


def _data(op: dict[str, Any]) -> bytes | None:
    return None if op.get("hex") is None else bytes.fromhex(op["hex"])


@cache
def listener_log(version: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """What was done to the cluster, and what Flink's own listeners were notified of, in order: each with the phase that it belongs to."""
    lines = (FOLDER / version / "flink-listener.jsonl").read_text().splitlines()
    entries = sorted((json.loads(line) for line in lines), key=lambda entry: int(entry["wall_ns"]))
    phase, log = "", []
    for entry in entries:
        if entry["kind"] == "phase":
            phase = entry["text"]
        log.append((phase, entry))
    return tuple(log)


def observations(version: str, oracle: str) -> Iterator[tuple[str, ClusterObservation]]:
    """What a driver would have observed through the connection that `oracle` had: each with its phase."""
    tree, paths = Tree(), set[str]()
    log = deque(listener_log(version))
    connected, phase = False, ""
    for transaction in replay(version, tree):
        while log and log[0][1]["wall_ns"] // 1000 < transaction.micros:
            phase, entry = log.popleft()
            if entry["kind"] == "conn" and entry["oracle"] == oracle:
                at = _moment(entry["wall_ns"] // 1000)
                connection = ConnectionState(entry["state"].replace("RECONNECTED", "CONNECTED"))
                connected = connection is ConnectionState.CONNECTED
                yield phase, ViewObserved(at, "default", connection)
                if connected:
                    yield from ((phase, _read(tree, path, at)) for path in sorted(paths | {*znode_paths.JOB_STORES}))
                    yield phase, SnapshotCompleted(at, "default")
        for path in transaction.paths:
            interesting = path.rpartition("/")[0] if path.startswith(znode_paths.JOB_STORES) else path
            if znode_paths.component_of(path) or interesting in znode_paths.JOB_STORES:
                paths.add(interesting)
                if connected:
                    yield phase, _read(tree, interesting, _moment(transaction.micros))
            elif connected and znode_paths.is_latch(path.rpartition("/")[0]):
                latch = path.rpartition("/")[0]
                yield phase, ChildrenObserved(_moment(transaction.micros), "default", latch, tree.children(latch))
            elif connected and path not in tree.nodes and znode_paths.component_of(f"{path}/connection_info"):
                removed = f"{path}/connection_info"
                yield phase, PlaceRemoved(_moment(transaction.micros), "default", removed)


def _read(tree: Tree, path: str, at: Moment) -> ClusterObservation:
    if path in znode_paths.JOB_STORES:
        return ChildrenObserved(at, "default", path, tree.children(path))
    node = tree.nodes.get(path)
    return NodeObserved(at, "default", path, (node.data or b"") if node else b"", node.position if node else None)


def _moment(micros: int) -> Moment:
    return Moment(micros, micros)
