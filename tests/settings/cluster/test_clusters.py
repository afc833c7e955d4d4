"""One process may watch several clusters."""

from pathlib import Path

import pytest

from sidecar.core.policy.policy import Store
from sidecar.settings import SettingsError, load
from tests.settings.conftest import Write

LIST = """\
clusters:
- kubernetes: {cluster_id: orders, namespace: flink, kubeconfig: kubeconfig}
- zookeeper: {quorum: "zk:2181", cluster_id: payments, tls: {}}
- flink_conf_dir: conf
"""
KUBECONFIG = """\
contexts: [{name: work, context: {cluster: c, user: u, namespace: team}}]
current-context: work
"""


@pytest.fixture
def config(write: Write, tmp_path: Path) -> Path:
    """A configuration that lists three clusters, one in each way."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(
        "high-availability: {type: zookeeper, zookeeper.quorum: zk, cluster-id: /stock}\n"
    )
    return write(LIST)


def test_each_of_a_list_is_what_it_would_be_alone(config: Path) -> None:
    """In ConfigMaps, in ZooKeeper, and wherever Flink's configuration says, side by side."""
    settings = load(config, {})
    assert [(cluster.cluster_id, cluster.namespace) for cluster in settings.clusters] == [
        ("orders", "flink"),
        ("payments", "/flink/payments"),
        ("stock", "/flink/stock"),
    ]
    assert settings.policy().stores == {
        "orders": Store.KUBERNETES,
        "payments": Store.ZOOKEEPER,
        "stock": Store.ZOOKEEPER,
    }


def test_a_cluster_named_above_is_the_only_one(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Command line and environment name one cluster, and the list is passed over."""
    assert [cluster.cluster_id for cluster in load(config, {"zookeeper": "zk"}).clusters] == ["default"]
    monkeypatch.setenv("FLINK_HA_SIDECAR_ZOOKEEPER", "zk")
    assert [cluster.cluster_id for cluster in load(config, {"cluster_id": "x"}).clusters] == ["x"]


def test_what_is_given_above_is_given_to_each(write: Write, tmp_path: Path) -> None:
    """A kubeconfig of the command line is that of every cluster in the list."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    config = write("clusters: [{kubernetes: {cluster_id: a}}, {kubernetes: {cluster_id: b, namespace: own}}]\n")
    found = load(config, {"kubeconfig": tmp_path / "kubeconfig"}).clusters
    assert [(cluster.cluster_id, cluster.namespace) for cluster in found] == [("a", "team"), ("b", "own")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: []\n", "FILE:1: clusters: the list is empty: add a cluster, or remove the key"),
        ("clusters: orders\n", "FILE:1: clusters: must be a list"),
        (
            "clusters:\n- {}\n",
            "FILE:2: clusters[0]: names no cluster: give flink_conf_dir, zookeeper.quorum, kubernetes.cluster_id",
        ),
        (
            "clusters:\n- zookeeper: {root: /flink}\n",
            "FILE:2: clusters[0]: names no cluster: give flink_conf_dir, zookeeper.quorum, kubernetes.cluster_id",
        ),
        ("clusters: [{zookeper: {}}]\n", 'FILE:1: unknown key "zookeper": did you mean "zookeeper"?'),
        (
            "zookeeper: {quorum: zk}\nclusters: [{zookeeper: {quorum: zk}}]\n",
            "FILE:1: zookeeper: clusters is given too: move this cluster into the list, or remove the other",
        ),
        (
            "clusters:\n- zookeeper: {quorum: zk}\n- zookeeper: {quorum: other}\n",
            (
                "FILE:3: clusters[1]: there is a cluster default already (/flink/default in ZooKeeper zk), and records and alerts "
                "identify clusters by id: watch this one with a sidecar of its own"
            ),
        ),
    ],
)
def test_a_list_that_means_nothing_is_one_line(write: Write, text: str, message: str) -> None:
    """None, no way to it, two of one name."""
    config = write(text)
    with pytest.raises(SettingsError) as error:
        load(config, {})
    assert str(error.value).replace(str(config), "FILE") == message


def test_an_id_for_a_list_is_nobodys(config: Path) -> None:
    """`--cluster-id` alone does not say which of them it means, nor that it means another one."""
    with pytest.raises(
        SettingsError, match=r"^--cluster-id: the configuration lists clusters: name the store of this one too$"
    ):
        load(config, {"cluster_id": "orders"})
