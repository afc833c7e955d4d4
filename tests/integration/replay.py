"""Recorded transaction logs, done again on a live ZooKeeper: the same operations by the same sessions, in the same order."""

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kazoo.client import KazooClient, TransactionRequest

from sidecar.core.flink import znode_paths
from tests.kit import zookeeper_recordings as recordings

TRUE_PACE: Final = "FLINK_HA_SIDECAR_TRUE_PACE" in os.environ
"""Set to play idle stretches as long as they were: five minutes for a recording of five minutes."""

_ANSWER_SECONDS = 10.0
_SESSION_SECONDS = 30.0
_CREATES = {"create", "create2", "createContainer"}
_DELETES = {"delete", "deleteContainer"}


class Pace(NamedTuple):
    """How fast a recording is played: `speed` times as fast as it was made, infinity for as fast as it goes.

    Idle is the time in which nothing happened to what the sidecar watches (leaders, contenders, stored jobs); what happened beside it
    then, checkpoints for the most part, is played in what is left of that time. `idle`: how much of an idle stretch is left, in seconds
    of the recording.
    """

    speed: float
    idle: float = math.inf if TRUE_PACE else 0.25


PACES: Final = {"original": Pace(1), "10x": Pace(10), "as fast as it goes": Pace(math.inf)}


def schedule(entries: Sequence[dict[str, Any]], pace: Pace) -> list[float]:
    """When to play each of `entries`: seconds from the beginning."""
    recorded = [entry["t_ms"] / 1000 for entry in entries]
    beats = [at for at, entry in enumerate(entries) if _is_watched(entry) or at in {0, len(entries) - 1}]
    due = [0.0]
    for begin, end in pairwise(beats):
        took = recorded[end] - recorded[begin]
        shortened = min(took, pace.idle) / took if took else 1.0
        passed = (shortened * (recorded[at] - recorded[begin]) / pace.speed for at in range(begin + 1, end + 1))
        due += [due[begin] + seconds for seconds in passed]
    return due


class Operation(NamedTuple):
    """One thing that was done to one node. `path` is relative to the namespace; `data` is what stood there then, None for nothing."""

    session: str
    zxid: int
    kind: str
    path: str
    data: bytes | None


def operations(entries: Iterable[dict[str, Any]]) -> Iterator[Operation]:
    """What was done below the namespace, one after the other; `kind` is `create`, `setData` or `delete`."""
    for entry in entries:
        gone = [{"op": "delete", "path": path} for path in sorted(entry.get("deleted", ()))]
        for op in [*entry.get("ops", [entry]), *gone]:
            _, below, path = op.get("path", "").partition(recordings.NAMESPACE + "/")
            if below:
                kind = "create" if op["op"] in _CREATES else "delete" if op["op"] in _DELETES else op["op"]
                yield Operation(entry["session"], int(entry["zxid"], 16), kind, "/" + path, _data(op))


class Replay:
    """Plays one recording below `namespace` of a ZooKeeper. What it leaves open stays open until the `with` block ends.

    What differs from the recording: containers are persistent nodes (kazoo cannot create containers), names that ZooKeeper numbered are
    given as they turned out, bytes that the recording left out are one byte, requests that failed are not made, and ZooKeeper itself is
    not restarted where it was.
    """

    def __init__(self, address: str, namespace: str, version: str) -> None:
        self._quorum = f"{address}{namespace}"
        self._namespace = namespace
        self._entries = recordings.transactions(version)
        self._open: dict[str, tuple[KazooClient, threading.Event]] = {}
        self._server = KazooClient(address, timeout=_SESSION_SECONDS)
        self.sessions: dict[str, str] = {}
        """Which session played which: live ones, by those recorded, both as transaction logs write them. `0x0` is the server's own."""

    def __enter__(self) -> Self:
        self._server.start(_ANSWER_SECONDS)
        self._server.ensure_path(self._namespace)
        self._server.chroot = self._namespace
        self.sessions["0x0"] = _session_id(self._server)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for session in list(self._open):
            self._close(session)
        _stop(self._server)

    def play(self, pace: Pace) -> None:
        """Does everything, each at its time, or as soon after it as what came before is done."""
        began = time.monotonic()
        for due, entry in zip(schedule(self._entries, pace), self._entries, strict=True):
            time.sleep(max(began + due - time.monotonic(), 0))
            self._do(entry)

    def _do(self, entry: dict[str, Any]) -> None:
        match entry["op"]:
            case "createSession":
                self._begin(entry["session"])
            case "closeSession":
                self._close(entry["session"])
            case "multi":
                transaction = self._session(entry["session"]).transaction()
                for op in entry["ops"]:
                    _do(transaction, op)
                assert [result for result in transaction.commit() if isinstance(result, Exception)] == []
            case "error":
                pass
            case _:
                _do(self._session(entry["session"]), entry)

    def _begin(self, name: str) -> None:
        client = KazooClient(self._quorum, timeout=_SESSION_SECONDS)
        self._open[name] = client, client.start_async()

    def _session(self, name: str) -> KazooClient:
        if name == "0x0":
            return self._server
        if name not in self._open:  # it was there before the recording was
            self._begin(name)
        client, connected = self._open[name]
        assert connected.wait(_ANSWER_SECONDS), f"no connection to {self._quorum}"
        self.sessions[name] = _session_id(client)
        return client

    def _close(self, name: str) -> None:
        client = self._session(name)
        del self._open[name]
        _stop(client)


def _do(client: KazooClient | TransactionRequest, op: dict[str, Any]) -> None:
    """Do one operation, at once or as part of a transaction."""
    if op["op"] in _CREATES:
        client.create(op["path"], _data(op), ephemeral=op.get("ephemeral", False))
    elif op["op"] in _DELETES:
        client.delete(op["path"])
    else:
        assert op["op"] == "setData", f"this cannot be played: {op}"
        (client.set_data if isinstance(client, TransactionRequest) else client.set)(op["path"], _data(op))


def _stop(client: KazooClient) -> None:
    client.stop()
    client.close()


def _session_id(client: KazooClient) -> str:
    return f"{client.client_id[0] & 0xFFFFFFFFFFFFFFFF:#x}"


def _data(op: dict[str, Any]) -> bytes | None:
    """The bytes after an operation."""
    if op["op"] in _DELETES:
        return None
    return b"?" if op["hex"] is None else bytes.fromhex(op["hex"])


def _is_watched(entry: dict[str, Any]) -> bool:
    """Whether leaders, contenders or stored jobs changed."""
    return any(
        znode_paths.component_of(op.path)
        or op.path.startswith("/leader")
        or op.path.rpartition("/")[0] in znode_paths.JOB_STORES
        for op in operations([entry])
    )
