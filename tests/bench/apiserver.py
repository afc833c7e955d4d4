"""An API server whose audit log holds what it was asked."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.kubernetes_server import ApiServer, Kubernetes, assets

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "None", "users": ["admin"]}, {"level": "Metadata", "userGroups": ["system:authenticated"]}],
}


class Asked(NamedTuple):
    """One request that was answered to its end. `began` and `ended` are RFC 3339."""

    began: str
    ended: str
    verb: str
    uri: str
    status: int


class _Server(ApiServer):
    """Writes down what everybody but the admin asks."""

    def build_command(self) -> Sequence[str]:
        policy = self._folder / "audit-policy.json"
        policy.write_text(json.dumps(_POLICY))
        return [
            *super().build_command(),
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self._folder / 'audit.jsonl'}",
        ]


class OpenKubernetes(Kubernetes):
    """Such an API server, and its etcd, in `folder`."""

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
