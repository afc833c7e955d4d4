"""Clusters are found in place of being named: where, by which labels, and what contradicts that."""

from pathlib import Path

import pytest

from sidecar.core.policy.policy import Store
from sidecar.settings import FinderSettings, SettingsError, load
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
    ("given", "selector", "namespaces", "qualified"),
    [
        ("namespaces: all", LABELS, None, True),
        ("namespaces: [a, b]", LABELS, ("a", "b"), True),
        ("namespaces: [a]", LABELS, ("a",), False),
        ("selector: 'app in (x, y)', namespace: flink", "app in (x, y)", ("flink",), False),
        ("selector: team=a", "team=a", ("monitoring",), False),
    ],
)
def test_where_clusters_are_found(
    write: Write, kubeconfig: Path, given: str, selector: str, namespaces: tuple[str, ...] | None, qualified: bool
) -> None:
    """Everywhere, in some namespaces, or in that of the kubeconfig; the ledger is in the latter. Several namespaces are part of the ids."""
    settings = load(write(f"kubernetes: {{{given}}}"), {})
    assert settings.finder == FinderSettings(selector, namespaces, "monitoring", kubeconfig, "home")
    assert settings.finder.qualified is qualified
    assert settings.clusters == ()
    assert settings.policy().finds is Store.KUBERNETES


@pytest.mark.parametrize(
    ("given", "part"),
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
    ],
)
def test_what_contradicts_it_is_one_line(write: Write, given: str, part: str) -> None:
    """With the place, and what to do."""
    with pytest.raises(SettingsError) as error:
        load(write(given), {})
    assert part in str(error.value)


def test_a_cluster_on_the_command_line_is_the_one(write: Write) -> None:
    """It comes before all that the file finds."""
    settings = load(write("kubernetes: {namespaces: all}"), {"kubernetes": True, "cluster_id": "orders"})
    assert settings.finder is None
    assert [cluster.cluster_id for cluster in settings.clusters] == ["orders"]
