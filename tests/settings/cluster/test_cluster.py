"""Which cluster is meant, when several places have something to say."""

from pathlib import Path

import pytest

from sidecar.settings import SettingsError, load, load_cluster
from tests.kit.sidecar_process import command
from tests.settings.conftest import Write, in_zookeeper, with_flinks_defaults


def test_a_quorum_is_enough() -> None:
    """Everything else is as in a Flink that was given nothing more."""
    assert load_cluster({"zookeeper": "zk-1:2181, zk-2:2181"}) == with_flinks_defaults("zk-1:2181,zk-2:2181")


@pytest.mark.parametrize(
    "quorum", ["zk", "zk:2181", "10.0.0.1:1,10.0.0.2", "[2001:db8::1]:2181", "zk_1.ns.svc:2181/chroot/a"]
)
def test_a_quorum_is_what_zookeepers_clients_take(quorum: str) -> None:
    """Names, addresses, ports where they differ from 2181, and a chroot at the end."""
    assert in_zookeeper(load_cluster({"zookeeper": quorum})).quorum == quorum


@pytest.mark.parametrize(
    "quorum",
    [
        "",
        ",",
        "zk:0",
        "zk:65536",
        "zk:x",
        "[::1]:",
        "zk://zk:2181",
        "u:p@zk:2181",
        "zk:1;zk:2",
        "a/../b",
        "a//b",
        "::1",
    ],
)
def test_anything_else_is_no_quorum(quorum: str) -> None:
    """The line says what is wrong before anything is connected to."""
    with pytest.raises(SettingsError, match=r"^--zookeeper: .* is not a (list of ZooKeeper servers|ZooKeeper path)"):
        load_cluster({"zookeeper": quorum})


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("zk-1:2181,", "zk-1:2181"),
        (",zk-1:2181, ,zk-2:2181,", "zk-1:2181,zk-2:2181"),
        ("zk-1:,zk-2", "zk-1,zk-2"),
        (" zk-1:2181 , zk-2/a ", "zk-1:2181,zk-2/a"),
        ("zk:02181,zk:+2181/", "zk:2181,zk:2181"),
        ("2001:db8::1:2181,[2001:db8::2]:2181/a", "[2001:db8::1]:2181,[2001:db8::2]:2181/a"),
    ],
)
def test_a_quorum_is_read_as_flinks_own_client_reads_it(written: str, read: str) -> None:
    """Empty parts are dropped, and the port follows the last colon: what ConnectStringParser of ZooKeeper 3.9.5 returned."""
    assert in_zookeeper(load_cluster({"zookeeper": written})).quorum == read


@pytest.mark.parametrize(
    ("quorum", "problem"),
    [
        (
            "zk-1:2181/a,zk-2:2181/a",
            "ZooKeeper's client takes everything after the first slash for the chroot: give the chroot once",
        ),
        ("zk-1:2181/a,zk-2", "give the chroot once, after the last server, like zk-1:2181,zk-2:2181/chroot"),
        ("2001:db8::1", "write an IPv6 address in brackets, like [2001:db8::1]:2181"),
        ('"zk-1:2181"', "'\"zk-1:2181\"' is not a list of ZooKeeper servers: write it like zk-1:2181,zk-2:2181"),
        ("http://zk:2181", '"http://zk:2181" is not a list of ZooKeeper servers: it is no URL'),
        ("zk 1:2181", '"zk 1:2181" is not a list of ZooKeeper servers'),
    ],
)
def test_what_is_wrong_with_a_quorum_is_shown_with_its_value(quorum: str, problem: str) -> None:
    """A quorum is no secret. A chroot after each server would be one odd chroot to Flink, too."""
    with pytest.raises(SettingsError) as error:
        load_cluster({"zookeeper": quorum})
    assert problem in str(error.value)
    assert quorum in str(error.value)


@pytest.mark.parametrize(
    ("root", "cluster_id", "namespace", "name"),
    [
        ("/flink", "/default", "/flink/default", "default"),
        ("flink/", "a/b/", "/flink/a/b", "a/b"),
        ("//root//", "//namespace//", "/root/namespace", "namespace"),
        ("////", "namespace", "/namespace", "namespace"),
        ("/flink", "/", "/flink", "flink"),
    ],
)
def test_paths_are_joined_as_flink_joins_them(root: str, cluster_id: str, namespace: str, name: str) -> None:
    """Slashes around the parts do not matter; a cluster without an id is called by its root."""
    found = load_cluster({"zookeeper": "zk", "root": root, "cluster_id": cluster_id})
    assert (found.namespace, found.cluster_id) == (namespace, name)


def test_the_environment_says_what_the_command_line_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value comes from the first place that gives it; an empty variable gives nothing."""
    monkeypatch.setenv("FLINK_HA_SIDECAR_ZOOKEEPER", "env:1")
    monkeypatch.setenv("FLINK_HA_SIDECAR_ROOT", "/env")
    monkeypatch.setenv("FLINK_HA_SIDECAR_CLUSTER_ID", "")
    found = in_zookeeper(load_cluster({"zookeeper": "line:1", "root": None}))
    assert (found.quorum, found.namespace) == ("line:1", "/env/default")


def test_command_line_over_environment_over_file(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    """The file's own values apply where nothing stands above them."""
    config = write("zookeeper: {quorum: 'file:1', root: /file, cluster_id: file, session_timeout: 20s}\n")
    monkeypatch.setenv("FLINK_HA_SIDECAR_ROOT", "/env")
    found = in_zookeeper(load(config, {"cluster_id": "line"}).clusters[0])
    assert (found.quorum, found.namespace, found.session_timeout) == ("file:1", "/env/line", 20.0)


def test_a_place_that_names_the_cluster_otherwise_is_passed_over(write: Write, conf_dir: Path) -> None:
    """--flink-conf means the cluster of that Flink, whatever root and id the file gives to another quorum; and the other way round."""
    config = write("zookeeper: {quorum: 'file:1', root: /file, cluster_id: file}\n")
    assert load(config, {"flink_conf": conf_dir}).clusters[0].namespace == "/flink/orders"
    config = write(f"flink_conf_dir: {conf_dir}\nzookeeper: {{cluster_id: app-1}}\n")
    assert load(config, {"zookeeper": "line:1"}).clusters[0].namespace == "/flink/default"


def test_flinks_configuration_can_be_completed(write: Write, conf_dir: Path) -> None:
    """On YARN the cluster id stands in no file of Flink's: it can be given beside the folder."""
    config = write(f"flink_conf_dir: {conf_dir}\nzookeeper: {{cluster_id: application_1, session_timeout: 10s}}\n")
    cluster = in_zookeeper(load(config, {}).clusters[0])
    assert (cluster.quorum, cluster.namespace, cluster.session_timeout) == ("zk:2181", "/flink/application_1", 10.0)
    assert cluster.flink_session_timeout == 60.0  # ours says nothing of Flink's
    assert load(config, {}).policy().session_timeouts == {"application_1": 60_000_000}
    assert load(config, {"zookeeper": "zk"}).policy().session_timeouts == {}
    assert load_cluster({"flink_conf": conf_dir, "cluster_id": "x"}).namespace == "/flink/x"


def test_config_check_says_what_is_lost_without_flinks_configuration(write: Write, conf_dir: Path) -> None:
    """The upper bound of each downtime. That is no mistake: the check still says ok."""
    config = write("zookeeper: {quorum: 'zk:2181', cluster_id: orders}\n")
    lines = command("config", "check", "--config", str(config)).stdout.splitlines()
    lacks = "lacks      flink_conf_dir: messages cannot say how long orders was without a leader at most"
    assert (lines[1], lines[-1]) == (lacks, "ok")
    config = write(f"flink_conf_dir: {conf_dir}\n")
    assert "lacks" not in command("config", "check", "--config", str(config)).stdout


def test_a_cluster_named_twice_is_an_error(write: Write, conf_dir: Path) -> None:
    """Two ways in one place: which one was meant is unknown."""
    with pytest.raises(SettingsError) as error:
        load_cluster({"flink_conf": conf_dir, "zookeeper": "zk"})
    assert str(error.value) == "--zookeeper: --flink-conf names a cluster too: give one of them"
    config = write("flink_conf_dir: /opt/flink/conf\nzookeeper:\n  quorum: zk\n")
    with pytest.raises(SettingsError) as error:
        load(config, {})
    assert str(error.value) == (
        f"{config}:3: zookeeper.quorum: {config}:1: flink_conf_dir names a cluster too: give one of them"
    )


def test_flinks_own_places_are_looked_at_last(monkeypatch: pytest.MonkeyPatch, conf_dir: Path, tmp_path: Path) -> None:
    """FLINK_CONF_DIR, then the folder of Flink's image."""
    (tmp_path / "opt-flink-conf").mkdir()
    (tmp_path / "opt-flink-conf" / "flink-conf.yaml").write_text(
        "high-availability: zookeeper\nhigh-availability.zookeeper.quorum: image\n"
    )
    assert in_zookeeper(load_cluster({})).quorum == "image"
    monkeypatch.setenv("FLINK_CONF_DIR", str(conf_dir))
    assert in_zookeeper(load_cluster({})).quorum == "zk:2181"
    assert in_zookeeper(load_cluster({"zookeeper": "line"})).quorum == "line"


def test_a_flink_conf_dir_that_is_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who set FLINK_CONF_DIR meant it."""
    monkeypatch.setenv("FLINK_CONF_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(SettingsError, match=r"^FLINK_CONF_DIR: there is no folder"):
        load_cluster({})


def test_no_cluster_at_all_is_one_line_that_says_what_to_give() -> None:
    """Nothing given, nothing found."""
    with pytest.raises(SettingsError) as error:
        load_cluster({})
    assert str(error.value) == (
        "which Flink cluster? give --flink-conf DIR (the folder of Flink's config.yaml), or --zookeeper HOST:PORT[,…] "
        "[--root /flink] [--cluster-id /default], or --kubernetes --cluster-id ID [--namespace NS] [--kubeconfig FILE]; "
        "in the configuration: flink_conf_dir, zookeeper.quorum, or kubernetes.cluster_id"
    )


def test_a_name_that_is_no_setting_is_a_mistake_of_the_caller() -> None:
    """Whoever wires a command to the settings hears of a misspelling at once."""
    with pytest.raises(TypeError, match="no such settings: zokeeper"):
        load_cluster({"zokeeper": "zk"})
