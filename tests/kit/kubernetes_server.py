"""A real API server with its etcd, and people who use it."""

import json
import os
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from uuid import uuid4

from tests import ROOT
from tests.kit.certificates import Authority
from tests.kit.config_maps import LEASE
from tests.lab.processes import ServerProcess, free_port

VERSION = "1.20.2"
API_SERVER = f"envtest-{VERSION}-2"
"""The folder of the cache with both programs."""
_SCRIPT = ROOT / "scripts" / "build-kube-apiserver.sh"
_BUILD_SECONDS = 570.0  # less than a test may take; `make fetch` has built it before
ENDING = ("setpriv", "--pdeathsig", "TERM")
"""A command gets SIGTERM when whoever started it ends."""
_ANSWER_SECONDS = 10.0
_ADMIN_TOKEN = "admin-of-the-tests"
_EXEC = "client.authentication.k8s.io/v1"
USERS = {user: f"token-of-{user}" for user in ("somebody", "reader", "lister", "rotated", "nobody", "finder")}
"""Tokens of those who need to be given permissions."""
Json = dict[str, Any]


def assets(build_seconds: float = _BUILD_SECONDS) -> Path:
    """The folder with `kube-apiserver` and `etcd`: $KUBEBUILDER_ASSETS, else the user's cache, into which they are built where missing.

    The build ends with this process, and after `build_seconds`.
    """
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        assert (Path(named) / "kube-apiserver").is_file(), f"KUBEBUILDER_ASSETS: there is no kube-apiserver in {named}"
        return Path(named)
    built = subprocess.run(
        [*ENDING, "timeout", str(build_seconds), *ENDING, "bash", str(_SCRIPT)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert built.returncode == 0, (
        f"no kube-apiserver to test on: {_SCRIPT} failed; see what it said, or set KUBEBUILDER_ASSETS to a folder with "
        "kube-apiserver and etcd (setup-envtest fills one)"
    )
    return Path(built.stdout.strip())


class Etcd(ServerProcess):
    """One etcd, its data in `folder`."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        super().__init__("etcd", folder / "etcd.log")
        self._folder = folder
        self._binary = binaries / "etcd"
        self._ports = (0, 0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    def choose_ports(self) -> None:
        self._ports = (free_port(), free_port())

    def build_command(self) -> Sequence[str]:
        peers = f"http://127.0.0.1:{self._ports[1]}"
        return [
            *(str(self._binary), "--data-dir", str(self._folder / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *(
                "--listen-peer-urls",
                peers,
                "--initial-advertise-peer-urls",
                peers,
                "--initial-cluster",
                f"default={peers}",
            ),
        ]

    def is_ready(self) -> bool:
        with suppress(OSError):
            return bool(self._ask("maintenance/status", {}))
        return False

    def revision(self) -> int:
        """How often anything was written."""
        return int(self._ask("kv/range", {"key": "YQ=="})["header"]["revision"])

    def compact(self) -> None:
        """Forget everything but what stands now."""
        self._ask("kv/compaction", {"revision": str(self.revision()), "physical": True})

    def _ask(self, what: str, body: Json) -> Json:
        request = urllib.request.Request(f"{self.url}/v3/{what}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            return dict(json.load(answer))


class ApiServer(ServerProcess):
    """One kube-apiserver over `etcd`, with RBAC. `users` are tokens by user name."""

    def __init__(self, folder: Path, binaries: Path, etcd: Etcd, authority: Authority) -> None:
        super().__init__("kube-apiserver", folder / "kube-apiserver.log")
        self._folder = folder
        self._binary = binaries / "kube-apiserver"
        self._etcd = etcd
        self._authority = authority
        self._identity = authority.issue("kube-apiserver", "IP:127.0.0.1")
        self._signer = authority.issue("service-accounts")
        self._trust = ssl.create_default_context(cafile=str(authority.ca))
        self._port = 0
        self.users: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"https://{self.address}"

    def choose_ports(self) -> None:
        self._port = free_port()

    def build_command(self) -> Sequence[str]:
        certificate, key = self._identity
        tokens = self._folder / "tokens.csv"
        rows = [f"{token},{user},{user}\n" for user, token in self.users.items()]
        tokens.write_text(f'{_ADMIN_TOKEN},admin,admin,"system:masters"\n{"".join(rows)}')
        return [
            *(str(self._binary), f"--etcd-servers={self._etcd.url}", "--bind-address=127.0.0.1"),
            *("--advertise-address=127.0.0.1", f"--secure-port={self._port}", f"--tls-cert-file={certificate}"),
            *(f"--tls-private-key-file={key}", f"--client-ca-file={self._authority.ca}"),
            *(f"--service-account-key-file={self._signer[0]}", f"--service-account-signing-key-file={self._signer[1]}"),
            *("--service-account-issuer=https://kubernetes.default.svc", f"--token-auth-file={tokens}"),
            *("--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"),
            *("--disable-admission-plugins=ServiceAccount", "--enable-priority-and-fairness=false"),
        ]

    def is_ready(self) -> bool:
        """Whether it says so, and lists and watches ConfigMaps: it fills its cache when first asked."""
        with suppress(OSError):
            watch = "/api/v1/configmaps?watch=true&resourceVersion=0&timeoutSeconds=1"
            return self._open("GET", "/readyz") == b"ok" and self._open("GET", watch) is not None
        return False

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """An answer to the admin. Raises HTTPError."""
        return dict(json.loads(self._open(method, path, body)))

    def _open(self, method: str, path: str, body: Json | None = None) -> bytes:
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {_ADMIN_TOKEN}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS, context=self._trust) as answer:
            return bytes(answer.read())


class Kubernetes:
    """An API server and its etcd in `folder`. Killed and started again, it has the same address and the same data."""

    def __init__(self, folder: Path, binaries: Path, **users: str) -> None:
        """`users`: tokens by name."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.authority = Authority(folder / "authority")
        self.etcd = Etcd(folder, binaries)
        self.server = ApiServer(folder, binaries, self.etcd, self.authority)
        self.server.users = users

    def start(self) -> None:
        self.etcd.start()
        self.server.start()

    def kill(self) -> None:
        self.server.kill()
        self.etcd.kill()

    def service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a token of a service account."""
        return self.kubeconfig(name, token=self.token(namespace, name))

    def token(self, namespace: str, name: str) -> str:
        """A token of a service account, as the kubelet would mount it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        return str(self.server.ask("POST", path, request)["status"]["token"])

    def kubeconfig(self, user: str = "admin", *, server: str | None = None, **credentials: str) -> Path:
        """A kubeconfig for a user with a token, or with these `credentials` (`client_certificate=…`); `server` is a URL."""
        own = {key.replace("_", "-"): value for key, value in credentials.items()}
        token = {"token": _ADMIN_TOKEN if user == "admin" else self.server.users.get(user, "nobody's")}
        cluster = {"server": server or self.server.url, "certificate-authority": str(self.authority.ca)}
        file = self._folder / f"kubeconfig-{len(list(self._folder.glob('kubeconfig-*')))}"
        file.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "tests", "cluster": cluster}],
                    "users": [{"name": user, "user": own or token}],
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
                    "current-context": "tests",
                }
            )
        )
        return file

    def namespace(self, name: str) -> "Namespace":
        """A namespace, made where it is not there."""
        with suppress(HTTPError):
            self.server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return Namespace(self.server, name)

    def allow_everywhere(self, user: str, *verbs: str, resource: str = "configmaps", group: str = "") -> None:
        """Give `user` a ClusterRole: these verbs on the ConfigMaps of all namespaces, or on another resource."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        rule = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        role = f"{user}-{uuid4()}"
        self.server.ask("POST", f"{rbac}/clusterroles", {"metadata": {"name": role}, "rules": [rule]})
        binding = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        self.server.ask("POST", f"{rbac}/clusterrolebindings", binding)


class Namespace:
    """Somebody who writes ConfigMaps of one namespace: what Flink is to the driver. And gives permissions there."""

    def __init__(self, server: ApiServer, name: str) -> None:
        self._server = server
        self.name = name
        self._path = f"/api/v1/namespaces/{name}/configmaps"

    def create(
        self,
        name: str,
        data: Mapping[str, str | None] | None = None,
        leader: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Json:
        return self._server.ask("POST", self._path, _config_map(name, data, leader, labels))

    def replace(
        self,
        name: str,
        data: Mapping[str, str | None] | None = None,
        leader: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Json:
        return self._server.ask("PUT", f"{self._path}/{name}", _config_map(name, data, leader, labels))

    def delete(self, name: str) -> None:
        self._server.ask("DELETE", f"{self._path}/{name}")

    def run_pod(
        self,
        name: str,
        address: str,
        phase: str = "Running",
        labels: Mapping[str, str] | None = None,
        node: str = "",
        owner: Json | None = None,
    ) -> Json:
        """A pod with this IP address, as its kubelet would report it; there is no kubelet."""
        path = f"/api/v1/namespaces/{self.name}/pods"
        container = {"name": "jobmanager", "image": "flink", "env": [{"name": "PASSWORD", "value": "secret"}]}
        spec = {"containers": [container], **({"nodeName": node} if node else {})}
        metadata = {"name": name, "labels": labels or {}, "ownerReferences": [owner] if owner else []}
        pod = self._server.ask("POST", path, {"metadata": metadata, "spec": spec})
        pod["status"] |= {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]}
        return self._server.ask("PUT", f"{path}/{name}/status", pod)

    def disrupt_pod(self, name: str, reason: str) -> None:
        """The condition that an eviction sets since Kubernetes 1.26."""
        path = f"/api/v1/namespaces/{self.name}/pods/{name}"
        pod = self._server.ask("GET", path)
        pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
        self._server.ask("PUT", f"{path}/status", pod)

    def delete_pod(self, name: str) -> None:
        """It has a grace period, and no kubelet that would end it."""
        self._server.ask("DELETE", f"/api/v1/namespaces/{self.name}/pods/{name}")

    def remove_pod(self, name: str) -> None:
        """By force, or as its kubelet does when all of it has ended."""
        self._server.ask("DELETE", f"/api/v1/namespaces/{self.name}/pods/{name}", {"gracePeriodSeconds": 0})

    def show_pod(self, name: str, **status: Any) -> Json:
        """Its status, as its kubelet would report it."""
        path = f"/api/v1/namespaces/{self.name}/pods/{name}"
        pod = self._server.ask("GET", path)
        pod["status"] |= status
        return self._server.ask("PUT", f"{path}/status", pod)

    def report(self, kind: str, name: str, uid: str, reason: str, message: str) -> None:
        """An Event about an object."""
        about = {"kind": kind, "name": name, "uid": uid, "namespace": self.name}
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "lastTimestamp": at,
        }
        self._server.ask("POST", f"/api/v1/namespaces/{self.name}/events", event)

    def events(self, kind: str, of: Json) -> list[Json]:
        """The Events that `kubectl describe` shows of an object: it asks for these fields."""
        about = {"kind": kind, "name": of["metadata"]["name"], "uid": of["metadata"]["uid"], "namespace": self.name}
        fields = quote(",".join(f"involvedObject.{field}={value}" for field, value in about.items()))
        events = self._server.ask("GET", f"/api/v1/namespaces/{self.name}/events?fieldSelector={fields}")
        return sorted(events["items"], key=lambda event: str(event["firstTimestamp"]))

    def get(self, name: str) -> Json:
        return self._server.ask("GET", f"{self._path}/{name}")

    def allow(
        self, user: str, *verbs: str, names: Sequence[str] = (), resource: str = "configmaps", group: str = ""
    ) -> None:
        """Give `user` a Role: these verbs on ConfigMaps, on those of these `names` alone where there are any."""
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.name}"
        rule = {"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names}
        role = f"{user}-{len(self._server.ask('GET', f'{rbac}/roles')['items'])}"
        self._server.ask("POST", f"{rbac}/roles", {"metadata": {"name": role}, "rules": [rule]})
        binding = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        self._server.ask("POST", f"{rbac}/rolebindings", binding)


def _config_map(
    name: str, data: Mapping[str, str | None] | None, leader: str | None, labels: Mapping[str, str] | None
) -> Json:
    annotations = {} if leader is None else {LEASE: leader}
    return {"metadata": {"name": name, "labels": labels or {}, "annotations": annotations}, "data": data or {}}


def program(script: str) -> Json:
    """A user of a kubeconfig whom a shell script knows: it prints an `exec_credential`."""
    call = {"command": "sh", "args": ["-c", script], "interactiveMode": "Never"}
    return {"exec": {"apiVersion": _EXEC, **call}}


def exec_credential(token: str) -> str:
    return json.dumps({"apiVersion": _EXEC, "kind": "ExecCredential", "status": {"token": token}})
