"""The checks over a real ensemble: a good one passes, each fault is a RISK, and what cannot be read is UNKNOWN. Nothing is written."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

from sidecar.core.ha.finding import CheckVerdict, UnknownFact
from sidecar.drivers.zookeeper import ensemble_probe
from tests.kit.commands_scene import JobManagers
from tests.kit.serving import serving
from tests.kit.sidecar_process import command
from tests.kit.strange_servers import answering, holding_back_words
from tests.kit.waiting import wait_for
from tests.kit.zookeeper_client import connected
from tests.kit.zookeeper_ensemble import Ensemble, Member, quorum
from tests.kit.zookeeper_findings import CREDENTIALS, Findings, contend, creator, findings, led, verdicts
from tests.lab.zookeeper import ZooKeeper

PASS, RISK, UNKNOWN = CheckVerdict.PASS, CheckVerdict.RISK, CheckVerdict.UNKNOWN


@pytest.fixture(scope="module")
def shared_ensemble(tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path) -> Iterator[Ensemble]:
    with serving(Ensemble(tmp_path_factory.mktemp("ensemble"), flink_2_home, java)) as servers:
        yield servers


@pytest.fixture
def ensemble(shared_ensemble: Ensemble) -> Ensemble:
    """Three members that serve, whatever the test before did to them."""
    shared_ensemble.heal()
    return shared_ensemble


def tree(client: KazooClient, path: str = "/") -> dict[str, Any]:
    """Every znode with the transactions that made, changed and filled it, its data and who may do what."""
    acl, stat = client.get_acls(path)
    nodes = {path: (stat.czxid, stat.mzxid, stat.pzxid, stat.aversion, client.get(path)[0], acl)}
    for name in client.get_children(path):
        if name != "zookeeper":
            nodes |= tree(client, f"{path.rstrip('/')}/{name}")
    return nodes


@contextmanager
def configured(ensemble: Ensemble, member: Member, line: str) -> Iterator[None]:
    """`member` has that line in its zoo.cfg."""
    member.kill()
    member.servers += f"\n{line}"
    member.launch()
    try:
        yield
    finally:
        member.kill()
        ensemble.heal()


def test_a_good_ensemble_passes_and_nothing_is_written(ensemble: Ensemble, place: str) -> None:
    """All but the ACLs, which are open as Flink's default is. What Flink keeps is the same before and after."""
    with led(ensemble.reachable, place), connected(ensemble.reachable) as client:
        before = tree(client)
        results = findings(quorum(*ensemble.members), place)
        assert tree(client) == before
    assert {name: result.text for name, result in results.items() if result.verdict is not PASS} == {
        "open_acls": results["open_acls"].text
    }
    assert results["zookeeper_servers"].text == "3 of 3 servers opened a session"
    assert results["failure_tolerance"].text == "3 of 3 voting servers serve: 1 may still fail"
    assert results["session_timeout"].text == "Flink's session timeout of 60 s is granted"


@pytest.mark.covers("command:ha check")
def test_the_command_passes_where_every_check_does(ensemble: Ensemble, place: str, tmp_path: Path) -> None:
    """The cluster of Flink's own configuration, whose znodes Flink's identity alone may change. Exit status 3: no REST server answers."""
    root, _, name = place.rpartition("/")
    (tmp_path / "config.yaml").write_text(f"""\
high-availability:
  type: zookeeper
  storageDir: s3://bucket/ha
  cluster-id: {name}
  zookeeper:
    quorum: {quorum(*ensemble.members)}
    path: {{root: /flink/{root}}}
    client: {{tolerate-suspended-connections: true, acl: creator, authorization: {{digest: "{CREDENTIALS}"}}}}
""")
    (tmp_path / "masters").write_text("jm-a:8081\njm-b:8081\n")
    with ExitStack() as opened:
        opened.enter_context(connected(ensemble.reachable)).ensure_path(f"/flink/{root}")
        for _ in range(2):
            contend(opened.enter_context(creator(ensemble.reachable)), f"/flink/{place}")
        ended = command("ha", "check", "--flink-conf", str(tmp_path), "-o", "json")
    assert ended.stderr == ""
    (cluster,) = json.loads(ended.stdout)["clusters"]
    others = {check["check"]: check["verdict"] for check in cluster["checks"] if check["verdict"] != "PASS"}
    assert others == {"task_managers": "UNKNOWN"}
    assert {"masters", "storage_dir", "tolerate_suspended"} <= {check["check"] for check in cluster["checks"]}
    assert ended.returncode == 3
    assert "hunter2" not in ended.stdout


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
def test_a_server_that_is_away(ensemble: Ensemble, place: str, *, frozen: bool) -> None:
    """The ensemble serves, and no other server may fail. One that is frozen accepts connections."""
    last = ensemble.members[2]
    with led(ensemble.reachable, place):
        last.pause() if frozen else last.kill()
        ensemble.leader()
        results = wait_for("a session", lambda: read_if_connected(ensemble, place))
    assert verdicts(results, RISK) == {"zookeeper_servers", "failure_tolerance", "open_acls"}
    reason = "it has not answered in 4 s" if frozen else "Connection refused"
    assert results["zookeeper_servers"].text == f"1 of 3 servers opened no session: {last.address} ({reason})"
    assert results["failure_tolerance"].text == "2 of 3 voting servers serve: 0 may still fail"
    assert verdicts(results, UNKNOWN) == {"server_load"}


def read_if_connected(ensemble: Ensemble, place: str) -> Findings | None:
    """None during an election."""
    found = findings(quorum(*ensemble.members), place)
    return None if found["standby"].verdict is UNKNOWN else found


def test_an_ensemble_without_a_quorum_passes_nothing(ensemble: Ensemble, place: str) -> None:
    """It opens no session, so nothing is known; the place alone needs no answer."""
    for member in ensemble.members[1:]:
        member.kill()
    results = findings(quorum(*ensemble.members), place)
    assert verdicts(results, PASS) == {"shared_cluster_id"}
    assert verdicts(results, RISK) == set()


def test_one_server_of_an_ensemble_in_the_connection_string(ensemble: Ensemble, place: str) -> None:
    """Whoever starts while it is away finds no ensemble; the others are not judged."""
    results = findings(ensemble.members[0].address, place)
    assert results["connection_string"].text.startswith("the connection string names 1 of 3 servers: 127.0.0.1:")
    assert results["connection_string"].verdict is RISK
    assert results["failure_tolerance"].verdict is UNKNOWN


def test_one_member_grants_shorter_sessions(ensemble: Ensemble, place: str) -> None:
    """maxSessionTimeout of 20 s below Flink's 60 s. Without Flink's configuration the figure is there, and no verdict."""
    member = ensemble.members[1]
    with configured(ensemble, member, "maxSessionTimeout=20000"):
        member.await_ready()
        servers = quorum(*ensemble.members)
        capped = findings(servers, place)["session_timeout"]
        assert findings(servers, place, flink_session_timeout=15.0)["session_timeout"].verdict is PASS
        unread = findings(servers, place, flink_session_timeout=None)["session_timeout"]
    assert (capped.verdict, capped.text) == (
        RISK,
        f"Flink asks for sessions of 60 s and gets 20 s from {member.address}",
    )
    assert unread.verdict is UNKNOWN
    assert f"{member.address} grants sessions of up to 20 s, Flink's default is 60 s" in unread.text


def test_a_session_that_is_longer_than_flink_s(shared_zookeeper: ZooKeeper, place: str) -> None:
    """ZooKeeper's least is two ticks, here 2 s; ZooKeeper's protocol knows no session of a year."""
    result = findings(shared_zookeeper.address, place, flink_session_timeout=1.0)["session_timeout"]
    assert (result.verdict, "asks for sessions of 1 s and gets 2 s" in result.text) == (RISK, True)
    result = findings(shared_zookeeper.address, place, flink_session_timeout=366 * 86_400.0)["session_timeout"]
    assert (result.verdict, "and gets 60 s" in result.text) == (RISK, True)


def test_a_member_whose_four_letter_words_are_held_back(ensemble: Ensemble, place: str) -> None:
    """By a proxy: ZooKeeper itself always answers `srvr`. The member's load, and whether it votes, are not known; all else is."""
    *others, last = ensemble.members
    with led(ensemble.reachable, place), answering(holding_back_words(last.address)) as proxy:
        results = findings(f"{quorum(*others)},{proxy}", place)
        short = findings(f"{others[0].address},{proxy}", place)["failure_tolerance"]
    assert results["zookeeper_servers"].verdict is PASS
    assert results["server_load"].text == f"1 of 3 servers did not report it: {proxy} does not answer srvr: no answer"
    assert verdicts(results, UNKNOWN) == {"server_load", "failure_tolerance"}
    assert results["failure_tolerance"].text.startswith(
        f"only 2 of 3 voting servers are known to serve: {proxy} does not"
    )
    assert short.verdict is UNKNOWN


def test_one_server_is_no_ensemble(shared_zookeeper: ZooKeeper, place: str, orders: JobManagers) -> None:
    """All else passes there."""
    assert orders.leader
    results = findings(shared_zookeeper.address, place)
    assert verdicts(results, RISK) == {"ensemble_size", "open_acls"}
    assert verdicts(results, UNKNOWN) == {"failure_tolerance"}


def test_zookeeper_3_4_has_no_configuration_to_read(old_zookeeper: ZooKeeper, place: str) -> None:
    """That it is one server is in its answer to `srvr`; how many there should be is in no znode."""
    results = findings(old_zookeeper.address, place)
    assert results["ensemble_size"].verdict is RISK
    assert results["connection_string"].text.startswith("/zookeeper/config does not exist: ZooKeeper is older than 3.5")
    assert results["zookeeper_servers"].verdict is PASS


def test_below_a_chroot_the_ensemble_s_configuration_is_hidden(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers
) -> None:
    """The cluster is read all the same."""
    assert orders.leader
    results = findings(f"{shared_zookeeper.address}/flink", place.replace("/orders", ""))
    assert "or the connection string has a chroot" in results["connection_string"].text
    with connected(shared_zookeeper.address) as client:
        client.ensure_path("/chroot")
        with led(f"{shared_zookeeper.address}/chroot", "below/it"):
            results = findings(f"{shared_zookeeper.address}/chroot", "below/it")
    assert results["standby"].text == "2 JobManagers contend for leadership"


class Configuration:
    """A session that reads nothing but this."""

    def __init__(self, *lines: str) -> None:
        self._content = "\n".join(lines).encode()

    def read(self, _path: str) -> tuple[bytes, None]:
        return self._content, None


@pytest.mark.parametrize(
    ("lines", "members"),
    [
        (["server.1=zk-1:2888:3888:participant;0.0.0.0:2181", "version=0"], [(1, "zk-1", True)]),
        (
            ["server.1=zk-1:2888:3888", "server.22=[2001:db8::1]:2888:3888:observer"],
            [(1, "zk-1", True), (22, "[2001:db8::1]", False)],
        ),
        (["server.1=a:2888:3888|b:2889:3889:observer;0.0.0.0:2181"], [(1, "a", False)]),
        (["version=100000000"], []),
        (["server.1=a:2888:3888", "server.two=b:2888:3888"], "has a line that is not known: server.two=b:2888:3888"),
        (["server.1=a:2888:3888", "group.1=1"], "has groups of servers (a hierarchical quorum), which are not judged"),
    ],
)
def test_members_as_zookeeper_writes_them(lines: list[str], members: list[tuple[int, str, bool]] | str) -> None:
    """Of every form. With a line that is not understood nobody counts majorities."""
    servers = ensemble_probe._members(cast("Any", Configuration(*lines)))  # white box: no ensemble here has all forms
    if isinstance(servers, UnknownFact):
        assert isinstance(members, str)
        assert members in servers.reason
    else:
        assert [(server.number, server.host, server.votes) for server in servers] == members
