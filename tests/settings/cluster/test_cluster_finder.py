"""Clusters are found in place of being named: where, by which labels, and what contradicts that."""

from pathlib import Path

import pytest

from sidecar.core.policy.policy import Store
from sidecar.settings import FinderSettings, SettingsError, ZooKeeperFinderSettings, load
from tests.settings.conftest import Write

LABELS = "type=flink-native-kubernetes"


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Whose context has a namespace."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        "current-context: home\n"
        "contexts: [{name: home, context: {cluster: c, user: u, namespace: monitoring}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.parametrize(
    ("text", "selector", "namespaces", "qualified"),
    [
        ("namespaces: all", LABELS, None, True),
        ("namespaces: [a, b]", LABELS, ("a", "b"), True),
        ("namespaces: [a]", LABELS, ("a",), False),
        ("selector: 'app in (x, y)', namespace: flink", "app in (x, y)", ("flink",), False),
        ("selector: team=a", "team=a", ("monitoring",), False),
    ],
)
def test_where_clusters_are_found(
    write: Write, kubeconfig: Path, text: str, selector: str, namespaces: tuple[str, ...] | None, qualified: bool
) -> None:
    """Everywhere, in some namespaces, or in that of the kubeconfig; the ledger is in the latter. Several namespaces are part of the ids."""
    settings = load(write(f"kubernetes: {{{text}}}"), {})
    assert settings.finder == FinderSettings(selector, namespaces, "monitoring", kubeconfig, "home")
    assert settings.finder.qualified is qualified
    assert settings.clusters == ()
    assert settings.policy().finds is Store.KUBERNETES


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "kubernetes: {namespaces: [a], cluster_id: x}",
            "names one cluster, and kubernetes.namespaces finds all of them",
        ),
        ("kubernetes: {namespaces: [a], namespace: b}", "namespaces is given too"),
        ("kubernetes: {namespaces: every}", 'kubernetes.namespaces: "every" is not one of the choices'),
        ("kubernetes: {namespaces: []}", "must be all, or a list of 1 to 50 different namespaces"),
        ("kubernetes: {namespaces: [a, a]}", "must be all, or a list of 1 to 50 different namespaces"),
        ("kubernetes: {namespaces: [A]}", "must be a namespace"),
        ("kubernetes: {selector: 'a%b'}", "must be a label selector"),
        ("kubernetes: {namespaces: all}\nclusters: []", "kubernetes.namespaces finds clusters, and names them all"),
        ("kubernetes: {namespaces: all}\nzookeeper: {quorum: zk}", "kubernetes.namespaces finds clusters"),
        ("kubernetes: {namespaces: all}\nevidence: {capture: [processes]}", "belong to no cluster that is found"),
        ("clusters: [{kubernetes: {cluster_id: a, selector: b}}]", 'unknown key "selector"'),
        ("zookeeper: {quorum: zk, clusters: some}", 'zookeeper.clusters: "some" is not one of the choices'),
        ("zookeeper: {clusters: all}", "needs zookeeper.quorum"),
        ("zookeeper: {quorum: zk, clusters: all, cluster_id: /x}", "names one cluster, and zookeeper.clusters finds"),
        (
            "zookeeper: {quorum: zk, clusters: all, tolerate_suspended_connections: true}",
            "is for a cluster that is named",
        ),
        ("zookeeper: {quorum: zk, clusters: all}\nflink_conf_dir: /conf", "remove one of the two"),
        ("zookeeper: {quorum: zk, clusters: all}\nclusters: []", "remove one of the two"),
        ("zookeeper: {quorum: zk, clusters: all}\nkubernetes: {cluster_id: x}", "remove one of the two"),
        ("zookeeper: {quorum: 'zk:x', clusters: all}", "is not a list of ZooKeeper servers"),
        ("zookeeper: {quorum: zk, root: /a/../b, clusters: all}", "is not a ZooKeeper path"),
        ("clusters: [{zookeeper: {quorum: zk, clusters: all}}]", "clusters"),
    ],
)
def test_what_contradicts_it_is_one_line(write: Write, text: str, part: str) -> None:
    """With the place or the key that is wrong, and what to do."""
    with pytest.raises(SettingsError) as error:
        load(write(text), {})
    assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cluster_on_the_command_line_is_the_one(write: Write) -> None:
    """It comes before all that the file finds."""
    settings = load(write("kubernetes: {namespaces: all}"), {"kubernetes": True, "cluster_id": "orders"})
    assert settings.finder is None
    assert [cluster.cluster_id for cluster in settings.clusters] == ["orders"]


def test_clusters_are_found_below_a_root_of_zookeeper(write: Write) -> None:
    """With how the quorum is reached, as for one cluster that is named."""
    settings = load(write("zookeeper: {quorum: 'zk-1:2181, zk-2:2181', clusters: all, session_timeout: 30s}"), {})
    assert settings.finder == ZooKeeperFinderSettings("zk-1:2181,zk-2:2181", "/flink", 30.0, 15.0)
    assert settings.finder.place == "/flink in ZooKeeper zk-1:2181,zk-2:2181"
    assert (settings.clusters, settings.policy().finds) == ((), Store.ZOOKEEPER)
    text = "zookeeper: {quorum: zk, root: //team/flink/, clusters: all, sasl: {username: u, password: p}}"
    finder = load(write(text), {}).finder
    assert isinstance(finder, ZooKeeperFinderSettings)
    assert (finder.root, finder.sasl is not None) == ("/team/flink", True)


def test_a_cluster_that_the_command_line_names_is_watched_alone(write: Write) -> None:
    """Nothing is found then."""
    settings = load(write("zookeeper: {quorum: zk, clusters: all}"), {"zookeeper": "other:2181"})
    assert settings.finder is None
    assert [cluster.cluster_id for cluster in settings.clusters] == ["default"]
