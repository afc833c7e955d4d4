"""Which ConfigMaps are meant, and how the API server is reached: as kubectl finds it, or as Flink does."""

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.core.policy.policy import Store
from sidecar.settings import FinderSettings, KubernetesSettings, SettingsError, load, load_cluster
from tests.kit.sidecar_process import command
from tests.lab.settings import write_kubernetes_conf_dir
from tests.settings.conftest import Write

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: home
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: very-secret}}]
contexts:
- {name: home, context: {cluster: here, user: me}}
- {name: work, context: {cluster: here, user: me, namespace: flink}}
- {name: broken}
- nonsense
"""
FACTORY = "org.apache.flink.kubernetes.highavailability.KubernetesHaServicesFactory"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig with two contexts, and what none is."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    return path


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The service account that we have in a pod."""
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("very-secret")
    (account / "namespace").write_text("flink-prod\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    return account


def error_of(call: Callable[[], object], folder: Path) -> str:
    with pytest.raises(SettingsError) as error:
        call()
    assert "very-secret" not in str(error.value)
    return str(error.value).replace(str(folder), "DIR")


def test_a_cluster_id_is_enough_in_a_pod(pod: Path) -> None:
    """The service account knows the way and the namespace."""
    cluster = load_cluster({"kubernetes": True, "cluster_id": "orders"})
    assert cluster == KubernetesSettings(cluster_id="orders", namespace="flink-prod")
    assert cluster.place == "the ConfigMaps of namespace flink-prod, by the pod's service account"
    (pod / "namespace").unlink()
    assert load_cluster({"kubernetes": True, "cluster_id": "orders"}).namespace == "default"


def test_a_kubeconfig_is_found_as_kubectl_finds_it(
    pod: Path, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The one given, that of KUBECONFIG, ~/.kube/config; only without any of them the pod's account."""

    def access(**section: object) -> tuple[Path | None, str | None, str]:
        cluster = load_cluster({"kubernetes": True, "cluster_id": "orders", **section})
        assert isinstance(cluster, KubernetesSettings)
        return cluster.kubeconfig, cluster.context, cluster.namespace

    assert access() == (None, None, "flink-prod")
    home = tmp_path / ".kube" / "config"
    home.parent.mkdir()
    home.write_text(KUBECONFIG.replace("current-context: home", "current-context: work"))
    assert access() == (home, "work", "flink")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert access() == (kubeconfig, "home", "default")
    assert access(context="work") == (kubeconfig, "work", "flink")
    assert access(context="work", namespace="other") == (kubeconfig, "work", "other")
    assert access(kubeconfig=home) == (home, "work", "flink")


def test_the_environment_and_the_configuration_name_it_too(
    kubeconfig: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command line over environment over configuration; a relative kubeconfig begins at the file that names it."""
    config = write("kubernetes: {cluster_id: file, namespace: file, kubeconfig: kubeconfig, context: work}\n")
    settings = load(config, {})
    assert settings.clusters[0] == KubernetesSettings("file", "file", kubeconfig, "work")
    assert settings.policy().stores == {"file": Store.KUBERNETES}
    monkeypatch.setenv("FLINK_HA_SIDECAR_KUBERNETES", "true")
    monkeypatch.setenv("FLINK_HA_SIDECAR_NAMESPACE", "env")
    assert load(config, {"cluster_id": "line"}).clusters[0] == KubernetesSettings("line", "env", kubeconfig, "work")
    monkeypatch.setenv("FLINK_HA_SIDECAR_KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("FLINK_HA_SIDECAR_CLUSTER_ID", "env")
    assert load_cluster({"context": "work"}) == KubernetesSettings("env", "env", kubeconfig, "work")


def test_a_place_that_names_a_cluster_in_zookeeper_is_passed_over(
    pod: Path, write: Write, conf_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other way round; a flag that says no names nothing."""
    config = write("zookeeper: {quorum: zk, root: /r, cluster_id: file, tls: {}}\n")
    assert load(config, {"kubernetes": True, "cluster_id": "line"}).clusters[0] == KubernetesSettings(
        "line", "flink-prod"
    )
    config = write("kubernetes: {cluster_id: file, namespace: file}\n")
    assert load(config, {"zookeeper": "zk"}).clusters[0].namespace == "/flink/default"
    assert load(config, {"flink_conf": conf_dir}).clusters[0].namespace == "/flink/orders"
    monkeypatch.setenv("FLINK_HA_SIDECAR_KUBERNETES", "false")
    assert load(write("zookeeper: {quorum: zk}\n"), {}).clusters[0].namespace == "/flink/default"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.yaml", "high-availability.type: kubernetes\nkubernetes: {cluster-id: orders, namespace: flink}\n"),
        ("config.yaml", f"high-availability: {{type: {FACTORY}}}\nkubernetes.cluster-id: orders\nkubernetes.namespace: flink\n"),
        ("flink-conf.yaml", "high-availability: KUBERNETES\nkubernetes.cluster-id: orders\nkubernetes.namespace: flink\n"),
        ("flink-conf.yaml", f"high-availability: {FACTORY}\nkubernetes.cluster-id: orders\nkubernetes.namespace: flink\n"),
    ],
)  # fmt: skip
def test_flinks_own_configuration_names_it(pod: Path, tmp_path: Path, file: str, text: str) -> None:
    """With the mode or with its factory, nested or flat; what it says of ZooKeeper does not count then."""
    (tmp_path / file).write_text(f"{text}high-availability.zookeeper.client.session-timeout: 5 parsecs\n")
    assert load_cluster({"flink_conf": tmp_path}) == KubernetesSettings("orders", "flink", flink_conf=tmp_path)
    assert load_cluster({"flink_conf": tmp_path, "namespace": "line"}).namespace == "line"


def test_where_flink_is_given_no_namespace_it_is_default(pod: Path, kubeconfig: Path, tmp_path: Path) -> None:
    """Flink asks neither the service account nor the context; what Flink calls its client's configuration is ours too."""
    conf = tmp_path / "config.yaml"
    conf.write_text("high-availability.type: kubernetes\nkubernetes.cluster-id: orders\n")
    assert load_cluster({"flink_conf": tmp_path}) == KubernetesSettings("orders", "default", flink_conf=tmp_path)
    conf.write_text(conf.read_text() + f"kubernetes.config.file: {kubeconfig}\nkubernetes.context: work\n")
    assert load_cluster({"flink_conf": tmp_path}) == KubernetesSettings(
        "orders", "default", kubeconfig, "work", flink_conf=tmp_path
    )


@pytest.mark.parametrize("version", [(1, 14), (1, 20), (2, 3)])
def test_what_a_real_flink_runs_with_is_read(tmp_path: Path, kubeconfig: Path, version: tuple[int, int]) -> None:
    """The configurations that the lab's Flink clusters start with."""
    write_kubernetes_conf_dir(tmp_path / "conf", version, kubeconfig, tmp_path / "data", timedelta(seconds=3))
    assert load_cluster({"flink_conf": tmp_path / "conf"}) == KubernetesSettings(
        "lab", "default", kubeconfig, "home", flink_conf=tmp_path / "conf"
    )


def test_flinks_configuration_can_be_completed(pod: Path, write: Write, kubeconfig: Path, tmp_path: Path) -> None:
    """A cluster id that stands in no file of Flink's is given beside the folder; and so is the way to the API server."""
    (tmp_path / "config.yaml").write_text("high-availability.type: kubernetes\nkubernetes.namespace: flink\n")
    assert load_cluster({"flink_conf": tmp_path, "cluster_id": "x"}) == KubernetesSettings(
        "x", "flink", flink_conf=tmp_path
    )
    config = write(f"flink_conf_dir: {tmp_path}\nkubernetes: {{kubeconfig: kubeconfig}}\n")
    assert load(config, {"cluster_id": "x"}).clusters[0] == KubernetesSettings(
        "x", "flink", kubeconfig, "home", flink_conf=tmp_path
    )


def test_flinks_two_files_must_agree(pod: Path, tmp_path: Path) -> None:
    """The mode and its factory are one; another namespace is another cluster."""
    (tmp_path / "config.yaml").write_text("high-availability.type: kubernetes\nkubernetes.cluster-id: orders\n")
    (tmp_path / "flink-conf.yaml").write_text(f"high-availability: {FACTORY}\nkubernetes.cluster-id: orders\n")
    assert load_cluster({"flink_conf": tmp_path}) == KubernetesSettings("orders", "default", flink_conf=tmp_path)
    with (tmp_path / "config.yaml").open("a") as file:
        file.write("kubernetes.namespace: flink\n")
    assert "disagree about high availability" in error_of(lambda: load_cluster({"flink_conf": tmp_path}), tmp_path)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "--kubernetes: the cluster id is missing: give --cluster-id (Flink's kubernetes.cluster-id)"),
        ({"cluster_id": "/default"}, '--cluster-id: "/default" must be a Kubernetes cluster id: lower-case letters, digits, - and .'),
        ({"cluster_id": "x", "namespace": "a.b"}, '--namespace: "a.b" must be a namespace: lower-case letters, digits and -'),
        ({"cluster_id": "x", "root": "/r"}, "--root: is for ZooKeeper, and the cluster is in Kubernetes (--kubernetes): remove it"),
        ({"cluster_id": "x", "zookeeper": "zk"}, "--kubernetes: --zookeeper names a cluster too: give one of them"),
        ({"cluster_id": "x", "flink_conf": "c"}, "--kubernetes: --flink-conf names a cluster too: give one of them"),
        ({"cluster_id": "x", "context": "work"}, "--context: is a context of a kubeconfig, and there is none: give --kubeconfig FILE"),
        ({"cluster_id": "x", "kubeconfig": "no"}, '--kubeconfig: "no" cannot be read: No such file or directory'),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_one_line(
    pod: Path, tmp_path: Path, section: dict[str, str], message: str
) -> None:
    """It names the option and what to do."""
    assert error_of(lambda: load_cluster({"kubernetes": True, **section}), tmp_path) == message


@pytest.mark.parametrize(
    ("text", "context", "message"),
    [
        (KUBECONFIG, "wrok", '--context: "wrok" is not a context of DIR/kubeconfig: did you mean "work"?'),
        (KUBECONFIG, "broken", '--context: "broken" is not a context of DIR/kubeconfig: expected one of home, work'),
        ("contexts: []\n", "work", '--context: "work" is not a context of DIR/kubeconfig: it has none'),
        ("{}", None, "--kubeconfig: DIR/kubeconfig has no current-context: give --context NAME"),
        (
            KUBECONFIG.replace("current-context: home", "current-context: hme"),
            None,
            'DIR/kubeconfig: current-context: "hme" is not a context of DIR/kubeconfig: did you mean "home"?',
        ),
        ("very-secret", None, "--kubeconfig: DIR/kubeconfig:1: must be a mapping of keys to values"),
        ("users: [very-secret", None, "--kubeconfig: DIR/kubeconfig:1: is not valid YAML: "),
        (
            KUBECONFIG.replace("namespace: flink", "namespace: A_B"),
            "work",
            'DIR/kubeconfig: the namespace of context work: "A_B" must be a namespace: lower-case letters, digits and -',
        ),
    ],
)
def test_a_kubeconfig_that_does_not_fit_is_one_line(
    kubeconfig: Path, tmp_path: Path, text: str, context: str | None, message: str
) -> None:
    """No such context, none that is current, no kubeconfig at all; none of its secrets shows."""
    kubeconfig.write_text(text)
    section = {"kubernetes": True, "cluster_id": "x", "kubeconfig": kubeconfig, "context": context}
    assert error_of(lambda: load_cluster(section), tmp_path).startswith(message)


def test_a_secret_in_the_place_of_a_kubeconfig_is_not_shown(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is no file may be anything."""
    monkeypatch.setenv("SLACK_URL", "slack://very-secret")
    config = write("kubernetes: {cluster_id: a, kubeconfig: '${SLACK_URL}'}\n")
    assert error_of(lambda: load(config, {}), tmp_path) == (
        'DIR/sidecar.yaml:1: kubernetes.kubeconfig: "${SLACK_URL}" cannot be read: No such file or directory'
    )


def test_without_any_way_to_the_api_server_the_line_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No pod, no kubeconfig; or several of them."""
    section = {"kubernetes": True, "cluster_id": "x"}
    assert error_of(lambda: load_cluster(section), tmp_path) == (
        "no access to the Kubernetes API server: there is neither a kubeconfig nor the service account of a pod: "
        "give --kubeconfig FILE, or give the pod its token (automountServiceAccountToken)"
    )
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    assert error_of(lambda: load_cluster(section), tmp_path) == (
        "KUBECONFIG names several files, and the sidecar does not merge them: give --kubeconfig FILE"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kubernetes: {cluster_id: a}\nzookeeper: {quorum: zk}\n",
            "FILE:1: kubernetes: zookeeper is given too, and a cluster is in one of them: remove the other",
        ),
        (
            "flink_conf_dir: conf\nkubernetes: {cluster_id: a}\n",
            "FILE:2: kubernetes.cluster_id: FILE:1: flink_conf_dir names a cluster too: give one of them",
        ),
        (
            "flink_conf_dir: conf\nkubernetes: {namespace: a}\n",
            (
                "FILE:2: kubernetes.namespace: is for Kubernetes, and the cluster is in ZooKeeper "
                "(DIR/conf/config.yaml:4: high-availability.zookeeper.quorum): remove it"
            ),
        ),
        ("kubernetes: {clusterid: a}\n", 'FILE:1: unknown key "clusterid": did you mean "cluster_id"?'),
        ("kubernetes: a\n", "FILE:1: kubernetes: must be a mapping of keys to values"),
        ("kubernetes: {cluster_id: a, kubeconfig: ''}\n", "FILE:1: kubernetes.kubeconfig: is empty: give a path"),
    ],
)
def test_a_mistake_in_the_configuration_is_one_line(
    write: Write, conf_dir: Path, tmp_path: Path, text: str, message: str
) -> None:
    """Both stores, both ways, a key of the other store, a key that is none."""
    config = write(text)
    assert error_of(lambda: load(config, {}), tmp_path).replace("DIR/sidecar.yaml", "FILE") == message


def test_config_check_says_which_cluster_it_is(kubeconfig: Path, write: Write, tmp_path: Path) -> None:
    """Without asking the API server; a context that does not exist is one line, and the status of a wrong configuration."""
    config = write("kubernetes: {cluster_id: orders, kubeconfig: kubeconfig, context: work}\n")
    checked = command("config", "check", "--config", str(config))
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.splitlines()[0] == (
        f"cluster    orders: the ConfigMaps of namespace flink, by context work of {kubeconfig}"
    )
    refused = command("config", "check", "--config", str(config), "--context", "wrok")
    assert (refused.returncode, refused.stderr.replace(str(tmp_path), "DIR")) == (
        2,
        'flink-ha-sidecar: --context: "wrok" is not a context of DIR/kubeconfig: did you mean "work"?\n',
    )


@pytest.mark.parametrize(
    ("section", "loaded"),
    [({"zookeeper": "zk"}, "kazoo"), ({"kubernetes": True, "cluster_id": "x", "kubeconfig": "KUBECONFIG"}, "urllib3")],
)
def test_the_library_of_the_other_store_is_not_loaded(
    kubeconfig: Path, section: dict[str, object], loaded: str
) -> None:
    """Each of them is a third of the memory."""
    section = {key: str(kubeconfig) if value == "KUBECONFIG" else value for key, value in section.items()}
    program = f"""\
import sys
import sidecar.app.running
from sidecar.runtime.clock import Clock
from sidecar.drivers import Drivers
from sidecar.settings import load_cluster
Drivers([load_cluster({section!r})], Clock())
print(*({{"kazoo", "kubernetes", "urllib3"}} & sys.modules.keys()))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == [loaded]


def test_names_of_pods_and_events_are_off_unless_wanted(pod: Path, write: Write) -> None:
    """In a cluster of the configuration, also beside Flink's own; of several, each has its own."""
    orders = KubernetesSettings("orders", "flink-prod")
    config = write("kubernetes: {cluster_id: orders, pod_names: true, events: true}\n")
    settings = load(config, {})
    assert settings.clusters == (replace(orders, pod_names=True, events=True),)
    assert (settings.policy().pod_names, settings.policy().events) == (frozenset({"orders"}),) * 2
    config = write(
        "clusters: [{kubernetes: {cluster_id: a, events: true}}, {kubernetes: {cluster_id: b, pod_names: true}}]\n"
    )
    policy = load(config, {}).policy()
    assert (policy.pod_names, policy.events) == (frozenset({"b"}), frozenset({"a"}))
    assert load(write("kubernetes: {cluster_id: orders}\n"), {}).clusters == (orders,)


def test_plans_are_not_read_unless_wanted(pod: Path, write: Write) -> None:
    """Of a cluster that is configured, and of those that are found."""
    config = write("kubernetes: {cluster_id: orders, plans: true}\n")
    (cluster,) = load(config, {}).clusters
    assert cluster == KubernetesSettings("orders", "flink-prod", plans=True)
    finder = load(write("kubernetes: {namespaces: all, plans: true}\n"), {}).finder
    assert isinstance(finder, FinderSettings)
    assert (finder.plans, finder.deaths) == (True, False)
    config = write("kubernetes: {namespaces: all, plans: maybe}\n")
    assert error_of(lambda: load(config, {}), pod).endswith('kubernetes.plans: "maybe" must be true or false')


def test_events_need_kubernetes(pod: Path, write: Write, tmp_path: Path) -> None:
    """One line: in ZooKeeper there is no object for them, and a flag is a flag."""
    (tmp_path / "config.yaml").write_text(
        "high-availability.type: zookeeper\nhigh-availability.zookeeper.quorum: zk:2181\n"
    )
    config = write(f"flink_conf_dir: {tmp_path}\nkubernetes: {{events: true}}\n")
    assert "kubernetes.events: is for Kubernetes, and the cluster is in ZooKeeper" in error_of(
        lambda: load(config, {}), tmp_path
    )
    config = write("kubernetes: {cluster_id: orders, events: yes}\n")
    assert error_of(lambda: load(config, {}), tmp_path).endswith('kubernetes.events: "yes" must be true or false')
