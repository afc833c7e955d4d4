"""`python -m tests.kit.pods.node COMMAND…`: starts a Kubernetes node in the sandbox (scripts/pods/sandbox.sh) and runs a command there.

Kubernetes 1.20.2: the newest that can be built from Debian's source. No kube-proxy and no DNS: pods are reached by their addresses.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.kit.certificates import Authority
from tests.kit.kubernetes_server import ENDING, Etcd, assets
from tests.kit.pods.api import NODE_ADDRESS, TOKEN, URL, Api
from tests.kit.pods.images import PAUSE, archive
from tests.lab.processes import ServerProcess

NAME: Final = "lab"
_SERVICES: Final = "198.19.0"
_IMPORT_SECONDS: Final = 300.0
_SCRIPT: Final = ROOT / "scripts" / "build-kube-apiserver.sh"


def is_ready() -> bool:
    """Whether the node can run pods, as the API server has it."""
    node = admin().resource(f"/api/v1/nodes/{NAME}")
    conditions = node["status"].get("conditions", []) if node else []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def pid_of(program: str) -> int:
    """The process of a program of the node, in this sandbox."""
    (process,) = (process for process in Path("/proc").glob("[0-9]*") if _program(process) == program)
    return int(process.name)


def _program(process: Path) -> str:
    try:
        return Path((process / "cmdline").read_text().partition("\0")[0]).name
    except OSError:  # it has ended
        return ""


@cache
def programs() -> Path:
    """The folder with kubelet and the other programs of a node, in the user's cache; they are built where they are missing."""
    built = subprocess.run([*ENDING, "bash", str(_SCRIPT), "node"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(built.stdout.strip())


def sandbox() -> Path:
    """The folder for the files of the sandbox that this process runs in."""
    return Path(os.environ["SANDBOX"])


def admin() -> Api:
    """The API of the node that runs in this sandbox."""
    return Api(sandbox() / "authority" / "ca.pem")


class _Server(ServerProcess):
    """A server of the node, with a command line that never changes."""

    def __init__(self, name: str, *command: str) -> None:
        path = os.environ["PATH"]
        debian = programs() / "debian"
        tools = {"PATH": f"{debian}/usr/bin:{debian}/usr/sbin:{path}"}
        super().__init__(name, sandbox() / f"{name}.log", os.environ | tools)
        self._line = command

    def choose_ports(self) -> None:
        """Nothing: in the sandbox they are all free."""

    def build_command(self) -> Sequence[str]:
        return self._line

    def is_ready(self) -> bool:
        return True


class _Etcd(Etcd):
    def choose_ports(self) -> None:
        """In the sandbox they are all free."""
        self._ports = (2379, 2380)


class _Containerd(_Server):
    def __init__(self) -> None:
        folder, tools = sandbox(), programs() / "debian" / "usr"
        (folder / "cni").mkdir()
        (folder / "cni" / "10-pods.conflist").write_text(json.dumps(_NETWORK))
        config = folder / "containerd.toml"
        config.write_text(_CONTAINERD.format(folder=folder, tools=tools, pause=PAUSE))
        super().__init__("containerd", str(tools / "bin" / "containerd"), "--config", str(config))
        self._ctr = (str(tools / "bin" / "ctr"), "--address", "/run/containerd/containerd.sock", "-n", "k8s.io")

    def is_ready(self) -> bool:
        return subprocess.run([*self._ctr, "version"], capture_output=True, timeout=10, check=False).returncode == 0

    def import_images(self) -> None:
        subprocess.run(
            [*self._ctr, "images", "import", archive()], check=True, capture_output=True, timeout=_IMPORT_SECONDS
        )


class _ApiServer(_Server):
    def __init__(self, etcd: Etcd, authority: Authority, signer: tuple[Path, Path]) -> None:
        names = ("DNS:kubernetes.default.svc", "DNS:kubernetes", f"IP:{NODE_ADDRESS}", f"IP:{_SERVICES}.1")
        certificate, key = authority.issue("kube-apiserver", *names)
        policy = sandbox() / "audit-policy.json"
        policy.write_text(json.dumps(_AUDIT))
        tokens = sandbox() / "tokens.csv"
        tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        super().__init__(
            "kube-apiserver",
            *(str(assets() / "kube-apiserver"), f"--etcd-servers={etcd.url}", "--bind-address=0.0.0.0"),
            *("--secure-port=443", f"--advertise-address={NODE_ADDRESS}", f"--tls-cert-file={certificate}"),
            *(f"--tls-private-key-file={key}", f"--client-ca-file={authority.ca}", f"--token-auth-file={tokens}"),
            *("--authorization-mode=RBAC", f"--service-account-key-file={signer[0]}"),
            *(f"--service-account-signing-key-file={signer[1]}", "--allow-privileged=true"),
            *(
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-cluster-ip-range={_SERVICES}.0/24",
            ),
            *(f"--audit-policy-file={policy}", f"--audit-log-path={sandbox()}/api-audit.log"),
            *("--endpoint-reconciler-type=none", "--kubelet-preferred-address-types=InternalIP"),
            "--feature-gates=BoundServiceAccountTokenVolume=true",  # tokens as Kubernetes has had them since 1.21
        )

    def is_ready(self) -> bool:
        return admin().is_ready()


class _Kubelet(_Server):
    def __init__(self, kubeconfig: Path) -> None:
        folder = sandbox()
        config = folder / "kubelet.json"
        config.write_text(json.dumps(_KUBELET | {"cgroupRoot": f"/{os.environ['SANDBOX_CGROUP']}"}))
        super().__init__(
            "kubelet",
            *(str(programs() / "kubelet"), f"--config={config}", f"--kubeconfig={kubeconfig}"),
            *(
                f"--root-dir={folder}/kubelet",
                f"--cert-dir={folder}/kubelet-certificates",
                "--container-runtime=remote",
            ),
            *(f"--hostname-override={NAME}", f"--node-ip={NODE_ADDRESS}"),
            *(
                "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
                f"--volume-plugin-dir={folder}/plugins",
            ),
        )

    def is_ready(self) -> bool:
        return is_ready()


class Node:
    """All of it. The API server is started again when it has ended: that is how a test restarts it."""

    def __init__(self) -> None:
        folder = sandbox()
        authority = Authority(folder / "authority")
        signer = authority.issue("service-accounts")
        kubeconfig = folder / "admin.kubeconfig"
        kubeconfig.write_text(_kubeconfig(authority.ca))
        self._etcd = _Etcd(folder, assets())
        self._etcd.choose_ports()  # the API server's command names them
        self._containerd = _Containerd()
        self._api_server = _ApiServer(self._etcd, authority, signer)
        common = (f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", "--leader-elect=false")
        self._controllers = [
            _Server("kube-scheduler", str(programs() / "kube-scheduler"), *common),
            _Server(
                "kube-controller-manager",
                *(str(programs() / "kube-controller-manager"), *common, f"--root-ca-file={authority.ca}"),
                *(f"--service-account-private-key-file={signer[1]}", "--node-monitor-grace-period=16s"),
            ),
        ]
        self._kubelet = _Kubelet(kubeconfig)
        self._stopping = threading.Event()

    def start(self) -> None:
        """Return when the node is ready to run pods."""
        with ThreadPoolExecutor(1) as importing:
            self._containerd.start()
            imported = importing.submit(self._containerd.import_images)
            self._etcd.start()
            self._api_server.start()
            for controller in self._controllers:
                controller.start()
            self._kubelet.start()
            imported.result()
        threading.Thread(target=self._keep, name="keeper", daemon=True).start()

    def stop(self) -> None:
        """The sandbox ends the processes."""
        self._stopping.set()

    def _keep(self) -> None:
        while not self._stopping.wait(0.2):
            self._api_server.launch()


def _kubeconfig(ca: Path) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "pods", "cluster": {"server": URL, "certificate-authority": str(ca)}}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "pods", "context": {"cluster": "pods", "user": "admin"}}],
            "current-context": "pods",
        }
    )


_NETWORK: Final = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isDefaultGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/ipam",
                "ranges": [
                    [
                        {
                            "subnet": "198.18.0.0/16",
                            "rangeStart": "198.18.1.10",
                            "rangeEnd": "198.18.9.250",
                            "gateway": NODE_ADDRESS,
                        }
                    ]
                ],
            },
        }
    ],
}
_AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
"""What accounts of pods asked, and whether they were allowed to."""
# Without CAP_SYS_RESOURCE, as in many CI machines, nobody may lower an oom_score_adj, and runc would fail.
_CONTAINERD: Final = """\
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
oom_score = 0
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{tools}/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""
_KUBELET: Final = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "failSwapOn": False,
    "makeIPTablesUtilChains": False,
    "resolvConf": "",
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    "imageGCHighThresholdPercent": 100,
    "nodeStatusUpdateFrequency": "2s",
    "featureGates": {"DevicePlugins": False, "KubeletPodResources": False},
}


def main(command: Sequence[str]) -> int:
    """The exit status of the command."""
    began = time.monotonic()
    node = Node()
    node.start()
    print(f"pods: a node is ready after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)  # noqa: T201
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        node.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
