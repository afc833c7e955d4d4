"""Where the ledger of a cluster is, in a real store, and what is reported where it is not."""

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from sidecar.drivers import ledger_of
from sidecar.drivers.kubernetes import Access
from sidecar.drivers.kubernetes.kubernetes_ledger import KubernetesLedger, ledger_name
from sidecar.drivers.zookeeper.zookeeper_ledger import ROOT, ZooKeeperLedger
from sidecar.ports import LedgerError, LedgerRefusedError, LedgerStore, StoredDocument
from sidecar.settings import KubernetesSettings, ZooKeeperSettings
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.waiting import LOADED_MACHINE_SECONDS
from tests.kit.zookeeper_client import connected
from tests.lab.zookeeper import ZooKeeper

CLUSTER = "demo"
PATIENCE_SECONDS = 60.0
"""For an answer that comes, on a busy machine."""
SECONDS = 1.5
"""For a call to what does not answer."""


class InZooKeeper:
    """A cluster of its own in a ZooKeeper that can be restarted."""

    def __init__(self, server: ZooKeeper) -> None:
        self._server = server
        self.root = f"/test-{uuid4()}"
        self.address = server.address

    def open(self, address: str = "", *, name: str = "ledger", seconds: float = PATIENCE_SECONDS) -> LedgerStore:
        return ZooKeeperLedger(address or self.address, f"{self.root}/{CLUSTER}", name=name, seconds=seconds)

    def settled(self) -> LedgerStore:
        """As the sidecar opens it."""
        return ledger_of(ZooKeeperSettings(self.address, f"{self.root}/{CLUSTER}", CLUSTER, 60.0, 15.0, False))

    def restart(self) -> None:
        self._server.kill()
        self._server.start()

    def put(self, content: bytes) -> None:
        """What somebody else may write there."""
        with client(self.address) as somebody:
            somebody.ensure_path(f"{ROOT}{self.root}/{CLUSTER}/ledger")
            somebody.set(f"{ROOT}{self.root}/{CLUSTER}/ledger", content)

    def delete(self) -> None:
        with client(self.address) as somebody:
            somebody.delete(f"{ROOT}{self.root}/{CLUSTER}/ledger")


class InKubernetes:
    """A namespace of its own in a Kubernetes whose API server can be restarted."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self.namespace = kubernetes.namespace(f"test-{uuid4()}")
        self.address = kubernetes.server.address

    def open(self, address: str = "", *, name: str = "ledger", seconds: float = PATIENCE_SECONDS) -> LedgerStore:
        access = Access(self._kubernetes.kubeconfig(server=f"https://{address or self.address}"))
        access.credentials()  # its reader is a program that takes half a second
        return KubernetesLedger(access, self.namespace.name, CLUSTER, name=name, seconds=seconds)

    def settled(self) -> LedgerStore:
        """As the sidecar opens it."""
        return ledger_of(KubernetesSettings(CLUSTER, self.namespace.name, self._kubernetes.kubeconfig(), "tests"))

    def restart(self) -> None:
        self._kubernetes.server.kill()
        self._kubernetes.server.start()

    def put(self, content: bytes) -> None:
        """What somebody else may write there."""
        self.namespace.create(ledger_name(CLUSTER), {"ledger": content.decode()})

    def delete(self) -> None:
        self.namespace.delete(ledger_name(CLUSTER))


Place = InZooKeeper | InKubernetes


def client(hosts: str, *identities: tuple[str, str]) -> AbstractContextManager[KazooClient]:
    """Somebody else who uses the ensemble."""
    return connected(hosts, auth_data=identities)


def put(store: LedgerStore, content: bytes) -> StoredDocument:
    """Have it stand there, whatever does."""
    written = store.write(content, store.read())
    assert written is not None
    return written


def out_of_reach(act: Callable[[], object], *, seconds: float = SECONDS) -> str:
    """The error of a call that ends in time without an answer."""
    before = time.monotonic()
    with pytest.raises(LedgerError) as error:
        act()
    assert time.monotonic() - before < seconds + LOADED_MACHINE_SECONDS
    assert type(error.value) is LedgerError
    return one_line(error.value)


def refused(act: Callable[[], object]) -> str:
    """The error where we have no permission."""
    with pytest.raises(LedgerRefusedError) as error:
        act()
    return one_line(error.value)


def one_line(error: LedgerError) -> str:
    line = str(error)
    assert "\n" not in line
    assert not re.search(r"0x[0-9a-f]{6}|hunter|token-of|Traceback", line), line
    return line
