"""An API server whose etcd can be read along and whose audit log holds what it was asked, and a wire to it that counts its bytes."""

import json
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.kubernetes_server import ApiServer, Kubernetes, assets

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "None", "users": ["admin"]}, {"level": "Metadata", "userGroups": ["system:authenticated"]}],
}
_CONNECT_SECONDS = 5.0


class Asked(NamedTuple):
    """One request that was answered to its end. `began` and `ended` are RFC 3339."""

    began: str
    ended: str
    verb: str
    uri: str
    status: int


class _Server(ApiServer):
    """Writes into etcd as JSON, and down what everybody but the admin asks."""

    def build_command(self) -> Sequence[str]:
        policy = self._folder / "audit-policy.json"
        policy.write_text(json.dumps(_POLICY))
        return [
            *super().build_command(),
            "--storage-media-type=application/json",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self._folder / 'audit.jsonl'}",
        ]


class OpenKubernetes(Kubernetes):
    """An API server that hides nothing, and its etcd, in `folder`."""

    def __init__(self, folder: Path, *users: str) -> None:
        """`users`: their names; `server.users` has their tokens."""
        binaries = assets()
        super().__init__(folder, binaries)
        self.server = _Server(folder, binaries, self.etcd, self.authority)
        self.server.users = {user: f"token-of-{user}" for user in users}
        self._audit = folder / "audit.jsonl"

    def asked(self, user: str) -> list[Asked]:
        """What `user` has asked so far, in the order in which it was answered."""
        entries: list[dict[str, Any]] = [json.loads(line) for line in self._audit.read_text().splitlines()]
        return [
            Asked(
                entry["requestReceivedTimestamp"],
                entry["stageTimestamp"],
                entry["verb"],
                entry["requestURI"],
                entry["responseStatus"]["code"],
            )
            for entry in entries
            if entry["user"]["username"] == user
        ]


class Meter:
    """A TCP relay to one server that counts what goes through: TLS and all."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self.connections = 0
        self.sent = 0
        """Bytes towards the server."""
        self.received = 0
        """Bytes from the server."""
        self._target = (host, int(port))
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        for connection in (self._listener, *self._open):
            with suppress(OSError):  # closed before
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._accepting.join(_CONNECT_SECONDS)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    server = socket.create_connection(self._target, _CONNECT_SECONDS)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self.connections += 1
                self._open += [client, server]
                threading.Thread(target=self._relay, args=(client, server, "sent"), daemon=True).start()
                threading.Thread(target=self._relay, args=(server, client, "received"), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, counter: str) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                setattr(self, counter, getattr(self, counter) + len(data))
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
