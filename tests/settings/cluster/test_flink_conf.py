"""Flink's own configuration, read as Flink reads it. The expected values are what GlobalConfiguration of 1.20.5 and 2.3.0 answered."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.settings import SettingsError, ZooKeeperSettings, load_cluster
from tests.lab.settings import write_conf_dir
from tests.settings.conftest import in_zookeeper, with_flinks_defaults

NESTED = """
high-availability:
  type: ZooKeeper
  cluster-id: /orders
  storageDir: s3://bucket/ha
  zookeeper:
    quorum: "zk-1:2181, zk-2:2181"
    path: {root: /prod}
    client: {session-timeout: 5000, connection-timeout: 20 s, tolerate-suspended-connections: TRUE}
taskmanager.numberOfTaskSlots: 2
"""
FLAT = """
high-availability.type: zookeeper
high-availability.cluster-id: /orders
high-availability.zookeeper.quorum: zk-1:2181,zk-2:2181
high-availability.zookeeper.path.root: /prod
high-availability.zookeeper.client.session-timeout: 5 s
high-availability.zookeeper.client.connection-timeout: 20000 ms
high-availability.zookeeper.client.tolerate-suspended-connections: true
"""
DEPRECATED = """
recovery.mode: zookeeper
recovery.zookeeper.path.namespace: /orders
recovery.zookeeper.quorum: zk-1:2181,zk-2:2181
recovery.zookeeper.path.root: /prod
recovery.zookeeper.client.session-timeout: 5000
recovery.zookeeper.client.connection-timeout: 20000
high-availability.zookeeper.client.tolerate-suspended-connections: true
"""
LEGACY = """
# Flink 1
high-availability : zookeeper   # was recovery.mode
high-availability.zookeeper.quorum: zk-1:2181, zk-2:2181
high-availability.cluster-id: /orders#2
high-availability.cluster-id:/ignored
high-availability.zookeeper.path.root: /first
  high-availability.zookeeper.path.root: /prod\t
high-availability.zookeeper.client.session-timeout: 5000
high-availability.zookeeper.client.connection-timeout: 20 s
high-availability.zookeeper.client.tolerate-suspended-connections: True
env.java.opts: -Da=b
"""
ORDERS = ZooKeeperSettings(
    quorum="zk-1:2181,zk-2:2181",
    namespace="/prod/orders",
    cluster_id="orders",
    session_timeout=5.0,
    connection_timeout=20.0,
    tolerate_suspended=True,
    flink_session_timeout=5.0,
)


def write(folder: Path, **files: str) -> Path:
    """A configuration folder of Flink with `config` and `legacy` as its two files."""
    names = {"config": "config.yaml", "legacy": "flink-conf.yaml"}
    for name, text in files.items():
        (folder / names[name]).write_text(text)
    return folder


def error_of(folder: Path) -> str:
    with pytest.raises(SettingsError) as error:
        load_cluster({"flink_conf": folder})
    return str(error.value).replace(str(folder), "CONF")


@pytest.mark.parametrize(
    "files",
    [
        {"config": NESTED},
        {"config": FLAT},
        {"config": DEPRECATED},
        {"legacy": LEGACY},
        {"legacy": FLAT},
        {"legacy": DEPRECATED},
    ],
    ids=["nested", "flat", "deprecated", "legacy", "flat legacy", "deprecated legacy"],
)
def test_every_way_to_write_it_means_the_same_cluster(tmp_path: Path, files: dict[str, str]) -> None:
    """Nested or flat, of 1.x or 2.x, with today's keys or those of Flink 1.0."""
    assert load_cluster({"flink_conf": write(tmp_path, **files)}) == replace(ORDERS, flink_conf=tmp_path)


@pytest.mark.parametrize("version", [(1, 13), (1, 20), (2, 3)])
def test_what_a_real_flink_runs_with_is_read(tmp_path: Path, version: tuple[int, int]) -> None:
    """The configurations that the lab's Flink clusters start with."""
    write_conf_dir(tmp_path, version, "127.0.0.1:2181", tmp_path / "data", timedelta(seconds=4))
    found = in_zookeeper(load_cluster({"flink_conf": tmp_path}))
    assert (found.quorum, found.namespace, found.session_timeout) == ("127.0.0.1:2181", "/flink/lab", 4.0)


def test_what_flink_is_not_given_has_flinks_defaults(tmp_path: Path) -> None:
    """/flink, /default, 60 s and 15 s, no tolerance."""
    text = "high-availability.type: zookeeper\nhigh-availability.zookeeper.quorum: zk\n"
    assert load_cluster({"flink_conf": write(tmp_path, config=text)}) == replace(
        with_flinks_defaults("zk", flink_session_timeout=60.0), flink_conf=tmp_path
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("high-availability: zookeeper\nrecovery.mode: none\n", "is NONE"),
        ("high-availability.type: zookeeper\nrecovery.mode: none\n", "quorum is missing"),
        ("high-availability.type: none\nhigh-availability:\n  type: zookeeper\n", "quorum is missing"),
        ("high-availability:\n  type: zookeeper\nhigh-availability.type: none\n", "is NONE"),
    ],
)
def test_of_several_spellings_flinks_choice_wins(tmp_path: Path, text: str, message: str) -> None:
    """The current key before recovery.mode before the bare high-availability; of nested and flat, the last."""
    assert message in error_of(write(tmp_path, config=text))


def test_the_cluster_id_has_its_order_too(tmp_path: Path) -> None:
    """path.namespace of high-availability comes before that of recovery."""
    text = (
        FLAT.replace("cluster-id: /orders", "zookeeper.path.namespace: /a") + "recovery.zookeeper.path.namespace: /b\n"
    )
    assert load_cluster({"flink_conf": write(tmp_path, config=text)}).namespace == "/prod/a"


def test_lines_that_flink_ignores_are_ignored_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the line, not what stands in it."""
    text = FLAT + "no value here: \ns3.secret-key:hunter2\n\n   \n# comment\n"
    with caplog.at_level(logging.WARNING):
        load_cluster({"flink_conf": write(tmp_path, legacy=text)})
    path = tmp_path / "flink-conf.yaml"
    assert caplog.messages == [f'{path}:{line}: is not "key: value", ignored as Flink ignores it' for line in (9, 10)]


def test_two_files_that_agree_are_one(tmp_path: Path) -> None:
    """Both formats may stand side by side, as after a migration."""
    assert load_cluster({"flink_conf": write(tmp_path, config=FLAT, legacy=DEPRECATED)}) == replace(
        ORDERS, flink_conf=tmp_path
    )


def test_two_files_that_disagree_are_an_error(tmp_path: Path) -> None:
    """1.19 and 1.20 read one, 2.x the other: the folder does not show which Flink runs here."""
    assert error_of(write(tmp_path, config=FLAT, legacy=DEPRECATED.replace("orders", "payments"))) == (
        "--flink-conf: config.yaml and flink-conf.yaml in CONF disagree about high availability, and Flink's version decides "
        "which one it reads: remove one, or give --zookeeper (with --root and --cluster-id) or --kubernetes instead"
    )


INSTEAD = "name the cluster with --zookeeper or --kubernetes if it runs elsewhere"
NO_HA = (
    "CONF/config.yaml: high-availability.type is NONE or not set: a Flink cluster without high availability has no leader to watch: "
    f"set it to zookeeper or kubernetes, or {INSTEAD}"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("high-availability: NONE\n", NO_HA),
        ("# empty\n", NO_HA),
        ("recovery.mode: standalone\n", NO_HA),
        (
            "high-availability.type: kubernetes\n",
            "CONF/config.yaml:1: high-availability.type: the cluster id is missing: give --cluster-id (Flink's kubernetes.cluster-id)",
        ),
        (
            "high-availability.type: com.example.ConsulHaServicesFactory\n",
            (
                'CONF/config.yaml:1: high-availability.type: "com.example.ConsulHaServicesFactory" is a custom factory class, and its '
                f"leader store is not known: {INSTEAD}"
            ),
        ),
        (
            "high-availability.type: zookeeper\n",
            f"CONF/config.yaml: high-availability.zookeeper.quorum is missing: set it, or {INSTEAD}",
        ),
        (
            FLAT.replace("5 s", "5 parsecs"),
            (
                'CONF/config.yaml:6: high-availability.zookeeper.client.session-timeout: "5 parsecs" is not a Flink duration: Flink reads '
                '"60 s", "1 min" or "60000" (milliseconds)'
            ),
        ),
        (
            FLAT.replace("20000 ms", "99 d"),
            'CONF/config.yaml:7: high-availability.zookeeper.client.connection-timeout: "99 d" is too long: give at most 3w3d',
        ),
        (
            FLAT.replace("connections: true", "connections: yes"),
            'CONF/config.yaml:8: high-availability.zookeeper.client.tolerate-suspended-connections: "yes" must be true or false',
        ),
        (
            FLAT.replace("/orders", "0123"),
            (
                'CONF/config.yaml:3: high-availability.cluster-id: "0123" is a number to Flink, which rewrites it: put it in '
                "quotes, or name the cluster yourself"
            ),
        ),
        (
            FLAT.replace("zk-1:2181,zk-2:2181", "[zk-1, zk-2]"),
            "CONF/config.yaml:4: high-availability.zookeeper.quorum must be a single value",
        ),
        (
            FLAT.replace("/prod", "/prod/../a"),
            (
                'CONF/config.yaml:5: high-availability.zookeeper.path.root: "/prod/../a" is not a ZooKeeper path: it has an empty part, or '
                "one that is . or .."
            ),
        ),
        ("a: 1\na: 2\n", 'CONF/config.yaml:2: the key "a" is here twice (first in line 1): keep one'),
    ],
)
def test_a_flink_that_cannot_be_watched_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    """What is wrong, where it stands, and what to do instead."""
    assert error_of(write(tmp_path, config=text)) == message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('high-availability.type: "zookeeper"', "high-availability.type: '\"zookeeper\"'"),
        (
            'high-availability.zookeeper.quorum: "zk-1:2181,zk-2:2181"',
            "high-availability.zookeeper.quorum: '\"zk-1:2181,zk-2:2181\"'",
        ),
        ("high-availability.zookeeper.quorum: 'zk-1:2181'", "high-availability.zookeeper.quorum: \"'zk-1:2181'\""),
        (
            'high-availability.zookeeper.client.session-timeout: "5 s"',
            "high-availability.zookeeper.client.session-timeout: '\"5 s\"'",
        ),
    ],
)
def test_quotes_in_flink_conf_yaml_are_named(tmp_path: Path, line: str, problem: str) -> None:
    """They are a part of the value there, and Flink does not start with them."""
    assert error_of(write(tmp_path, legacy=f"{FLAT}{line}\n")) == (
        f"CONF/flink-conf.yaml:9: {problem} has quotes, which are a part of the value in flink-conf.yaml: remove them"
    )


def test_a_kubernetes_cluster_id_in_quotes_is_shown(tmp_path: Path) -> None:
    """It is no secret, and the quotes are what is wrong with it."""
    text = 'high-availability: kubernetes\nkubernetes.cluster-id: "orders"\n'
    assert error_of(write(tmp_path, legacy=text)) == (
        "CONF/flink-conf.yaml:2: kubernetes.cluster-id: '\"orders\"' has quotes, which are a part of the value in "
        "flink-conf.yaml: remove them"
    )


def test_a_path_in_quotes_is_the_path_that_flink_uses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Flink runs below a node whose name has quotes; so it is watched there, with a warning."""
    text = FLAT.replace("/orders", '"orders"')
    with caplog.at_level(logging.WARNING):
        assert load_cluster({"flink_conf": write(tmp_path, legacy=text)}).namespace == '/prod/"orders"'
    (message,) = caplog.messages
    assert message.endswith(
        "conf.yaml:3: high-availability.cluster-id: the value has quotes, which are a part of the value in flink-conf.yaml, for Flink too"
    )


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("high-availability:\n  type: zookeeper\n  zookeeper:\n    quorum:\n", 4, "high-availability.zookeeper.quorum"),
        ("high-availability:\n  type: zookeeper\n  cluster-id: ~\n", 3, "high-availability.cluster-id"),
        ("high-availability:\n", 1, "high-availability"),
    ],
)
def test_a_value_that_a_template_left_empty_is_named_with_its_line(
    tmp_path: Path, text: str, line: int, key: str
) -> None:
    """The line of the key, not the one after it."""
    assert error_of(write(tmp_path, config=text)) == (
        f"CONF/config.yaml:{line}: {key} has no value: give it one, or remove it"
    )


def test_a_byte_order_mark_in_flink_conf_yaml_hides_the_first_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Flink 1.20.5 takes it for a part of the key. In front of anything else it changes nothing here."""
    (tmp_path / "flink-conf.yaml").write_text(FLAT.lstrip(), encoding="utf-8-sig")
    assert error_of(tmp_path) == (
        "CONF/flink-conf.yaml:1: the file begins with a byte order mark, which is a part of the first key to Flink, so Flink does "
        "not read high-availability.type: save the file without it"
    )
    (tmp_path / "flink-conf.yaml").write_text(f"# ours\n{FLAT}", encoding="utf-8-sig")
    with caplog.at_level(logging.WARNING):
        assert load_cluster({"flink_conf": tmp_path}) == replace(ORDERS, flink_conf=tmp_path)
    assert caplog.messages == [f'{tmp_path}/flink-conf.yaml:1: is not "key: value", ignored as Flink ignores it']


def test_a_byte_order_mark_in_config_yaml_is_none_to_flink(tmp_path: Path) -> None:
    """A YAML reader takes it off."""
    (tmp_path / "config.yaml").write_text(FLAT.lstrip(), encoding="utf-8-sig")
    assert load_cluster({"flink_conf": tmp_path}) == replace(ORDERS, flink_conf=tmp_path)


def test_a_cluster_id_of_digits_is_kept_where_flink_keeps_it(tmp_path: Path) -> None:
    """Only numbers that Flink writes in another way are refused; in quotes none is one."""
    for written, namespace in (
        ("20261120", "/prod/20261120"),
        ("'0123'", "/prod/0123"),
        ("2026-11-20", "/prod/2026-11-20"),
    ):
        text = FLAT.replace("/orders", written)
        assert load_cluster({"flink_conf": write(tmp_path, config=text)}).namespace == namespace


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda _: None,
            "--flink-conf: there is no folder CONF/conf: give the one that holds Flink's config.yaml or flink-conf.yaml",
        ),
        (
            lambda conf: conf.write_text(""),
            "--flink-conf: there is no folder CONF/conf: give the one that holds Flink's config.yaml or flink-conf.yaml",
        ),
        (
            lambda conf: conf.mkdir(),
            "--flink-conf: CONF/conf holds neither config.yaml nor flink-conf.yaml: give Flink's configuration folder",
        ),
    ],
    ids=["nothing", "a file", "an empty folder"],
)
def test_no_configuration_is_one_clear_line(tmp_path: Path, make: object, message: str) -> None:
    """No such folder, a file in its place, or a folder without Flink's files."""
    assert callable(make)
    make(tmp_path / "conf")
    with pytest.raises(SettingsError) as error:
        load_cluster({"flink_conf": tmp_path / "conf"})
    assert str(error.value).replace(str(tmp_path), "CONF") == message
