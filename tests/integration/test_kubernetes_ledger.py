"""The ledger in a real Kubernetes: what a Role must allow, and what else is touched (nothing)."""

import json
import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from sidecar.core.delivery.ledger_document import Presence
from sidecar.core.flink.configmaps import is_leaders
from sidecar.drivers.kubernetes import Access
from sidecar.drivers.kubernetes.kubernetes_ledger import ANNOTATIONS, LABELS, KubernetesLedger, ledger_name
from sidecar.ports import LedgerRefusedError, StoredDocument
from sidecar.runtime.clock import Clock
from sidecar.sinks.notify.ledger_client import SharedLedger
from tests.integration.ledgers import CLUSTER, PATIENCE_SECONDS, SECONDS, out_of_reach, put, refused
from tests.kit.kubernetes_server import Json, Kubernetes, Namespace, program

NAME = "demo-flink-ha-sidecar"
WRONG = "a-token-that-nobody-has"


@pytest.fixture
def flink(kubernetes: Kubernetes) -> Namespace:
    """A namespace of this test's own, in which Flink has its leaders."""
    namespace = kubernetes.namespace(f"test-{uuid4()}")
    namespace.create(f"{CLUSTER}-cluster-config-map", {"org.apache.flink.k8s.leader.dispatcher": "1,a"}, "{}")
    return namespace


def config_maps(kubernetes: Kubernetes, namespace: Namespace) -> dict[str, Json]:
    """All that stands in the namespace, by name."""
    items = kubernetes.server.ask("GET", f"/api/v1/namespaces/{namespace.name}/configmaps")["items"]
    return {item["metadata"]["name"]: item for item in items}


def test_what_a_role_must_allow(kubernetes: Kubernetes, flink: Namespace) -> None:
    """Each verb that is missing is named; with get, create and patch all goes well, and where it was made beforehand, without create."""
    store = KubernetesLedger(Access(kubernetes.kubeconfig("somebody")), flink.name, CLUSTER, seconds=PATIENCE_SECONDS)
    assert f"allows the verb get on the resource configmaps with resourceNames [{NAME}]" in refused(store.read)
    flink.allow("somebody", "get", names=[NAME])
    allowed(store.read)
    line = refused(lambda: store.write(b"1", StoredDocument()))
    assert "allows the verb create on the resource configmaps (" in line
    flink.create(NAME)
    line = refused(lambda: store.write(b"1", store.read()))
    assert f"allows the verb patch on the resource configmaps with resourceNames [{NAME}]" in line
    flink.allow("somebody", "patch", names=[NAME])
    allowed(lambda: store.write(b"1", store.read()))
    assert store.read().content == b"1"
    store.stop()


def test_an_observer_that_is_still_there_writes_nothing(kubernetes: Kubernetes, flink: Namespace) -> None:
    """Whoever watches ConfigMaps, as Argo CD does, is left in peace. Another one that comes is written down."""
    one, two = (
        SharedLedger(
            KubernetesLedger(Access(kubernetes.kubeconfig()), flink.name, CLUSTER, seconds=PATIENCE_SECONDS),
            observer,
            Clock(),
            alone_if_refused=False,
        )
        for observer in ("one", "two")
    )
    versions = []
    for ledger in (one, one, one, two, one):
        assert ledger.announce(Presence(Clock()().wall, "http://10.0.0.1:9250")) is not None
        versions.append(config_maps(kubernetes, flink)[NAME]["metadata"]["resourceVersion"])
    assert [versions.index(version) for version in versions] == [0, 0, 0, 3, 3]
    one.stop()
    two.stop()


def allowed(act: Callable[[], object]) -> None:
    """The API server's own view of a new Role is a moment late."""
    deadline = time.monotonic() + 10
    while True:
        try:
            act()
        except LedgerRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


def test_its_config_map_is_none_of_flinks(kubernetes: Kubernetes, flink: Namespace) -> None:
    """It has labels of ours alone, none by which Flink finds and deletes its own, and nothing else was touched."""
    before = config_maps(kubernetes, flink)
    store = KubernetesLedger(Access(kubernetes.kubeconfig()), flink.name, CLUSTER, seconds=PATIENCE_SECONDS)
    put(store, b"1")
    after = config_maps(kubernetes, flink)
    assert ledger_name(CLUSTER) == NAME
    made = after.pop(NAME)
    assert not is_leaders(CLUSTER, NAME)
    assert after == before
    assert made["metadata"]["labels"] == LABELS
    assert made["metadata"]["annotations"] == ANNOTATIONS
    assert {"app", "type", "configmap-type"}.isdisjoint(LABELS)
    assert made["data"] == {"ledger": "1"}
    store.stop()


def test_what_else_stands_in_its_config_map_is_left_alone(kubernetes: Kubernetes, flink: Namespace) -> None:
    """Somebody's own keys and labels in a ConfigMap of that name, made beforehand or by mistake."""
    flink.create(NAME, {"config.yaml": "receivers: []"}, labels={"team": "ops"})
    store = KubernetesLedger(Access(kubernetes.kubeconfig()), flink.name, CLUSTER, seconds=PATIENCE_SECONDS)
    assert store.read().content == b""
    put(store, b"1")
    found = config_maps(kubernetes, flink)[NAME]
    assert found["data"] == {"config.yaml": "receivers: []", "ledger": "1"}
    assert found["metadata"]["labels"] == {"team": "ops"}
    store.stop()


def test_a_name_that_kubernetes_does_not_take_is_refused(kubernetes: Kubernetes, flink: Namespace) -> None:
    """The settings take no cluster id of more than 63 characters: of 63, it is kept; where a name were too long, the line would say so."""
    access = Access(kubernetes.kubeconfig())
    longest = KubernetesLedger(access, flink.name, "c" * 63, seconds=PATIENCE_SECONDS)
    assert put(longest, b"1") == longest.read()
    too_long = KubernetesLedger(access, flink.name, "c" * 240, seconds=PATIENCE_SECONDS)
    assert "metadata.name: Inv" in refused(lambda: too_long.write(b"1", too_long.read()))
    longest.stop()


def test_a_namespace_or_a_user_that_is_not_known_is_said(kubernetes: Kubernetes, flink: Namespace) -> None:
    """What may be put right at any time is no refusal."""
    missing = KubernetesLedger(Access(kubernetes.kubeconfig()), "nowhere", CLUSTER, seconds=PATIENCE_SECONDS)
    assert missing.read() == StoredDocument()
    assert 'namespaces "nowhere" not found' in out_of_reach(lambda: missing.write(b"1", StoredDocument()))
    unknown = KubernetesLedger(
        Access(kubernetes.kubeconfig(token=WRONG)), flink.name, CLUSTER, seconds=PATIENCE_SECONDS
    )
    assert "unauthorized (401)" in out_of_reach(unknown.read)


def test_a_program_that_hangs_takes_no_longer_than_a_call(kubernetes: Kubernetes, flink: Namespace) -> None:
    """Who is to say who we are is waited for as long as for anybody."""
    file = kubernetes.kubeconfig()
    config = json.loads(file.read_text())
    config["users"][0]["user"] = program("sleep 600")
    file.write_text(json.dumps(config))
    store = KubernetesLedger(Access(file), flink.name, CLUSTER, seconds=SECONDS)
    for _ in range(2):
        assert f"no answer in {SECONDS:g} s" in out_of_reach(store.read)
    store.stop()
