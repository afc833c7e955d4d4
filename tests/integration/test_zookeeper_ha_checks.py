"""The checks over a real ZooKeeper: a good ensemble passes, each fault is a RISK, and what cannot be read is UNKNOWN."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.core.ha.finding import Finding, Unknown, Verdict
from sidecar.core.ha.zookeeper_checks import ZOOKEEPER_CHECKS
from sidecar.core.moment import SECOND
from sidecar.drivers.zookeeper import ensemble_probe, server_probe
from sidecar.drivers.zookeeper.ensemble_probe import EnsembleProbe
from sidecar.lab.zookeeper import ZooKeeper
from sidecar.settings import Secret, TlsSettings, ZooKeeperSettings
from tests.kit.certificates import Authority
from tests.kit.cluster import JOB, A
from tests.kit.commands_scene import JobManagers
from tests.kit.driver_recorder import now
from tests.kit.fake_flink import Flink
from tests.kit.secured_zookeeper import SecuredZooKeeper
from tests.kit.serving import serving
from tests.kit.sidecar_process import command
from tests.kit.waiting import LOADED_MACHINE_SECONDS, wait_for
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.kit.zookeeper_ensemble import Ensemble, Member, quorum

PASS, RISK, UNKNOWN = Verdict.PASS, Verdict.RISK, Verdict.UNKNOWN
CREDENTIALS: Final = "flink:hunter2"
DIGEST: Final = {"digest": Secret(CREDENTIALS)}
CREATOR: Final = [make_acl("auth", "", all=True)]
DAY: Final = 86_400 * SECOND
TWO_DAYS: Final = 2 * DAY
OTHER_JOB: Final = "b" * 32

Findings = dict[str, Finding]


@pytest.fixture(scope="module")
def shared_ensemble(tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path) -> Iterator[Ensemble]:
    with serving(Ensemble(tmp_path_factory.mktemp("ensemble"), flink_2_home, java)) as servers:
        yield servers


@pytest.fixture
def ensemble(shared_ensemble: Ensemble) -> Ensemble:
    """Three members that serve, whatever the test before did to them."""
    shared_ensemble.heal()
    return shared_ensemble


@pytest.fixture
def place(namespace: str) -> str:
    """The id of a cluster whose root no other test has."""
    return f"{namespace.removeprefix('/flink/')}/orders"


@pytest.fixture
def orders(shared_zookeeper: ZooKeeper, place: str) -> Iterator[JobManagers]:
    """A cluster of two JobManagers, in ZooKeeper of one server."""
    with led(shared_zookeeper.address, place) as cluster:
        yield cluster


@contextmanager
def led(address: str, place: str, names: str = "ab") -> Iterator[JobManagers]:
    cluster = JobManagers(address, place, names)
    try:
        yield cluster
    finally:
        cluster.stop()


def findings(address: str, place: str, *, later: int = 0, wall: int | None = None, **settings: Any) -> Findings:
    """What all checks find. `later`: by how many microseconds the sidecar's clock is ahead; `wall`: what it shows."""
    given: dict[str, Any] = {"session_timeout": 10.0, "connection_timeout": 5.0, "tolerate_suspended": True} | settings
    given = {"flink_session_timeout": 60.0} | given
    cluster = ZooKeeperSettings(address, f"/flink/{place}", place, **given)
    facts = EnsembleProbe(cluster, lambda: now().wall + later if wall is None else wall).read()
    return {name: check(facts) for name, check in ZOOKEEPER_CHECKS.items()}


def verdicts(found: Findings, verdict: Verdict) -> set[str]:
    return {name for name, each in found.items() if each.verdict is verdict}


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


@contextmanager
def answering(behaviour: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does that with each connection; its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def converse(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            behaviour(connection)

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)


def holding_back_words(address: str) -> Callable[[socket.socket], None]:
    """A proxy to the server at that address, which closes a connection that begins with a four-letter word."""
    host, _, port = address.partition(":")

    def relay(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(4096):
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)

    def behaviour(client: socket.socket) -> None:
        if (first := client.recv(4)) == b"srvr":
            return
        with socket.create_connection((host, int(port))) as server:
            server.sendall(first)
            asking = threading.Thread(target=relay, args=(client, server), daemon=True)
            asking.start()
            relay(server, client)
            client.shutdown(socket.SHUT_RDWR)
            asking.join()

    return behaviour


# -- an ensemble -------------------------------------------------------------------------------------------------------


def test_a_good_ensemble_passes_and_nothing_is_written(ensemble: Ensemble, place: str) -> None:
    """All but the ACLs, which are open as Flink's default is. What Flink keeps is the same before and after."""
    with led(ensemble.reachable, place), connected(ensemble.reachable) as client:
        before = tree(client)
        found = findings(quorum(*ensemble.members), place)
        assert tree(client) == before
    assert {name: each.text for name, each in found.items() if each.verdict is not PASS} == {
        "open_acls": found["open_acls"].text
    }
    assert found["zookeeper_servers"].text == "3 of 3 servers opened a session"
    assert found["failure_tolerance"].text == "3 of 3 voting servers serve: 1 may still fail"
    assert found["session_timeout"].text == "Flink's session timeout of 60 s is granted"


@pytest.mark.covers("command:ha check")
def test_the_command_passes_where_every_check_does(ensemble: Ensemble, place: str, tmp_path: Path) -> None:
    """Exit status 0: the cluster of Flink's own configuration, whose znodes Flink's identity alone may change."""
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
    assert {each["check"]: each["text"] for each in cluster["checks"] if each["verdict"] != "PASS"} == {}
    assert {"masters", "storage_dir", "tolerate_suspended"} <= {each["check"] for each in cluster["checks"]}
    assert ended.returncode == 0
    assert "hunter2" not in ended.stdout


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
def test_a_server_that_is_away(ensemble: Ensemble, place: str, *, frozen: bool) -> None:
    """The ensemble serves, and no other server may fail. One that is frozen accepts connections."""
    last = ensemble.members[2]
    with led(ensemble.reachable, place):
        last.pause() if frozen else last.kill()
        ensemble.leader()
        found = wait_for("a session", lambda: read_if_connected(ensemble, place))
    assert verdicts(found, RISK) == {"zookeeper_servers", "failure_tolerance", "open_acls"}
    reason = "it has not answered in 4 s" if frozen else "Connection refused"
    assert found["zookeeper_servers"].text == f"1 of 3 servers opened no session: {last.address} ({reason})"
    assert found["failure_tolerance"].text == "2 of 3 voting servers serve: 0 may still fail"
    assert verdicts(found, UNKNOWN) == {"server_load"}


def read_if_connected(ensemble: Ensemble, place: str) -> Findings | None:
    """None during an election."""
    found = findings(quorum(*ensemble.members), place)
    return None if found["standby"].verdict is UNKNOWN else found


def test_an_ensemble_without_a_quorum_passes_nothing(ensemble: Ensemble, place: str) -> None:
    """It opens no session, so nothing is known; the place alone needs no answer."""
    for member in ensemble.members[1:]:
        member.kill()
    found = findings(quorum(*ensemble.members), place)
    assert verdicts(found, PASS) == {"shared_cluster_id"}
    assert verdicts(found, RISK) == set()


def test_one_server_of_an_ensemble_in_the_connection_string(ensemble: Ensemble, place: str) -> None:
    """Whoever starts while it is away finds no ensemble; the others are not judged."""
    found = findings(ensemble.members[0].address, place)
    assert found["connection_string"].text.startswith("the connection string names 1 of 3 servers: 127.0.0.1:")
    assert found["connection_string"].verdict is RISK
    assert found["failure_tolerance"].verdict is UNKNOWN


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
    found = findings(shared_zookeeper.address, place, flink_session_timeout=1.0)["session_timeout"]
    assert (found.verdict, "asks for sessions of 1 s and gets 2 s" in found.text) == (RISK, True)
    found = findings(shared_zookeeper.address, place, flink_session_timeout=366 * 86_400.0)["session_timeout"]
    assert (found.verdict, "and gets 60 s" in found.text) == (RISK, True)


def test_a_member_whose_four_letter_words_are_held_back(ensemble: Ensemble, place: str) -> None:
    """By a proxy: ZooKeeper itself always answers `srvr`. The member's load, and whether it votes, are not known; all else is."""
    *others, last = ensemble.members
    with led(ensemble.reachable, place), answering(holding_back_words(last.address)) as proxy:
        found = findings(f"{quorum(*others)},{proxy}", place)
        short = findings(f"{others[0].address},{proxy}", place)["failure_tolerance"]
    assert found["zookeeper_servers"].verdict is PASS
    assert found["server_load"].text == f"1 of 3 servers did not report it: {proxy} does not answer srvr: no answer"
    assert verdicts(found, UNKNOWN) == {"server_load", "failure_tolerance"}
    assert found["failure_tolerance"].text.startswith(
        f"only 2 of 3 voting servers are known to serve: {proxy} does not"
    )
    assert short.verdict is UNKNOWN


def test_one_server_is_no_ensemble(shared_zookeeper: ZooKeeper, place: str, orders: JobManagers) -> None:
    """All else passes there."""
    assert orders.leader
    found = findings(shared_zookeeper.address, place)
    assert verdicts(found, RISK) == {"ensemble_size", "open_acls"}
    assert verdicts(found, UNKNOWN) == {"failure_tolerance"}


def test_zookeeper_3_4_has_no_configuration_to_read(old_zookeeper: ZooKeeper, place: str) -> None:
    """That it is one server is in its answer to `srvr`; how many there should be is in no znode."""
    found = findings(old_zookeeper.address, place)
    assert found["ensemble_size"].verdict is RISK
    assert found["connection_string"].text.startswith("/zookeeper/config does not exist: ZooKeeper is older than 3.5")
    assert found["zookeeper_servers"].verdict is PASS


def test_below_a_chroot_the_ensemble_s_configuration_is_hidden(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers
) -> None:
    """The cluster is read all the same."""
    assert orders.leader
    found = findings(f"{shared_zookeeper.address}/flink", place.replace("/orders", ""))
    assert "or the connection string has a chroot" in found["connection_string"].text
    with connected(shared_zookeeper.address) as client:
        client.ensure_path("/chroot")
        with led(f"{shared_zookeeper.address}/chroot", "below/it"):
            found = findings(f"{shared_zookeeper.address}/chroot", "below/it")
    assert found["standby"].text == "2 JobManagers contend for leadership"


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
    found = ensemble_probe._members(cast("Any", Configuration(*lines)))  # white box: no ensemble here has all forms
    if isinstance(found, Unknown):
        assert isinstance(members, str)
        assert members in found.reason
    else:
        assert [(each.number, each.host, each.votes) for each in found] == members


# -- the cluster -------------------------------------------------------------------------------------------------------


def test_without_a_standby(shared_zookeeper: ZooKeeper, place: str) -> None:
    """The leader contends alone; a second JobManager ends the risk; without any, or before the first start, nobody knows."""
    address = shared_zookeeper.address
    never = findings(address, place)["standby"]
    assert (never.verdict, "/leader/latch does not exist" in never.text) == (UNKNOWN, True)
    with led(address, place, "a"):
        assert findings(address, place)["standby"].verdict is RISK
        with led(address, place, "b"):
            assert findings(address, place)["standby"].verdict is PASS
    stopped = findings(address, place)["standby"]
    assert (stopped.verdict, stopped.text) == (
        UNKNOWN,
        "no JobManager contends for leadership: the cluster does not run",
    )


@contextmanager
def creator(address: str) -> Iterator[KazooClient]:
    """Flink with `client.acl: creator`: nobody else may read or change what it writes."""
    with connected(address, auth_data=[("digest", CREDENTIALS)], default_acl=CREATOR) as client:
        yield client


def contend(client: KazooClient, namespace: str) -> None:
    Flink(ZNodes(writer=ZooKeeperWriter(client, namespace))).submit().elect(A)
    client.create(f"{namespace}/leader/latch/_c_latch-", ephemeral=True, sequence=True)


def test_who_may_change_flink_s_znodes(shared_zookeeper: ZooKeeper, place: str) -> None:
    """Everybody: RISK, named; Flink alone: PASS with its credentials, and without them nothing of the cluster is known."""
    address, namespace = shared_zookeeper.address, f"/flink/{place}"
    root = namespace.rpartition("/")[0]
    assert findings(address, place)["open_acls"].text == "none of Flink's znodes exists"
    with connected(address) as anybody, creator(address) as flink:
        anybody.ensure_path(root)
        contend(flink, namespace)
        closed, refused = findings(address, place, authorization=DIGEST), findings(address, place)
        assert closed["open_acls"].verdict is PASS
        assert verdicts(refused, UNKNOWN) >= {"open_acls", "standby", "leftover_jobs"}
        assert refused["open_acls"].text == "no permission to read it in ZooKeeper"
        flink.set_acls(f"{namespace}/execution-plans", OPEN_ACL_UNSAFE)
        opened = findings(address, place, authorization=DIGEST)["open_acls"]
    assert (opened.verdict, opened.text) == (RISK, f"anybody may change {namespace}/execution-plans")


def test_what_dead_clusters_left_behind(shared_zookeeper: ZooKeeper, place: str, orders: JobManagers) -> None:
    """A day later it is a leftover, with the command that would remove it. One that is led, by Flink of any version, is none, nor is what
    is no cluster of Flink's.
    """
    assert orders.leader
    address, root = shared_zookeeper.address, f"/flink/{place.rpartition('/')[0]}"
    with ExitStack() as opened:
        client = opened.enter_context(connected(address))
        for era in ZNodeLayout:
            Flink(ZNodes(era, writer=ZooKeeperWriter(client, f"{root}/led-{era.name}"))).submit().elect(A)
        opened.enter_context(led(address, f"{root.removeprefix('/flink/')}/waiting", "a")).kill()
        client.ensure_path(f"{root}/kafka/leader/latest")
        client.create(f"{root}/waiting/leader/latch/_c_latch-", ephemeral=True, sequence=True)
        with connected(address) as dying:
            for era in ZNodeLayout:
                Flink(ZNodes(era, writer=ZooKeeperWriter(dying, f"{root}/dead-{era.name}"))).submit().elect(A)
        assert findings(address, place)["leftover_clusters"].verdict is PASS
        found = findings(address, place, later=TWO_DAYS)["leftover_clusters"]
    assert found.verdict is RISK
    assert found.text.startswith("4 clusters that nobody leads: dead-Z1 (last written 2 d ago), dead-Z2 (")
    assert f"deleteall {root}/dead-Z1; deleteall {root}/dead-Z2; " in found.advice


def test_a_cluster_whose_jobs_made_checkpoints_lately_is_no_leftover(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers
) -> None:
    """However long ago it was made: its JobManagers may be back at once."""
    assert orders.leader
    address, namespace = shared_zookeeper.address, f"/flink/{place.rpartition('/')[0]}/restarting"
    counter = f"{namespace}/jobs/{JOB}/checkpoint_id_counter"
    with connected(address) as client:
        with connected(address) as dying:
            Flink(ZNodes(writer=ZooKeeperWriter(dying, namespace))).submit().elect(A)
        client.ensure_path(counter)
        made = client.get(counter)[1].mtime
        wait_for("a later checkpoint", lambda: client.set(counter, b"").mtime > made)
        in_a_day = client.get(counter)[1].mtime * 1000 + DAY
        assert findings(address, place, wall=in_a_day)["leftover_clusters"].verdict is PASS
        client.delete(counter)
        assert findings(address, place, wall=in_a_day)["leftover_clusters"].verdict is RISK


def test_other_clusters_that_cannot_be_read(shared_zookeeper: ZooKeeper, place: str, orders: JobManagers) -> None:
    """Whether somebody leads them is not known."""
    assert orders.leader
    address, root = shared_zookeeper.address, f"/flink/{place.rpartition('/')[0]}"
    with creator(address) as flink:
        contend(flink, f"{root}/theirs")
    found = findings(address, place)["leftover_clusters"]
    assert (found.verdict, found.text) == (UNKNOWN, f"{root}/theirs: no permission to read it")


def test_what_ended_jobs_left_behind(shared_zookeeper: ZooKeeper, place: str, orders: JobManagers) -> None:
    """Checkpoints of a job that no store has, where Flink keeps them since 1.14, and where it did before."""
    assert orders.leader
    address, namespace = shared_zookeeper.address, f"/flink/{place}"
    with connected(address) as client:
        for job in (JOB, OTHER_JOB):
            client.ensure_path(f"{namespace}/jobs/{job}/checkpoints/0000000000000000007")
            client.ensure_path(f"{namespace}/checkpoints/{job}/0000000000000000007")
        assert findings(address, place)["leftover_jobs"].verdict is PASS
        found = findings(address, place, later=TWO_DAYS)["leftover_jobs"]
    assert found.verdict is RISK
    assert found.text.startswith("2 jobs with checkpoints that Flink would not recover: ")
    assert JOB not in found.text + found.advice
    assert f"deleteall {namespace}/jobs/{OTHER_JOB}; deleteall {namespace}/checkpoints/{OTHER_JOB}" in found.advice


def test_more_clusters_than_are_looked_at_are_unknown(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them would be a wrong answer."""
    assert orders.leader
    monkeypatch.setattr(ensemble_probe, "_MOST_SIBLINGS", 0)
    found = findings(shared_zookeeper.address, place)["leftover_clusters"]
    assert (found.verdict, found.text.endswith("has 1 children, more than 0")) == (UNKNOWN, True)


# -- servers that are none ---------------------------------------------------------------------------------------------


def silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def garbage(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x00\x05hello\x1b[2J\xff")


def endless(connection: socket.socket) -> None:
    while True:
        connection.sendall(
            b"\x00\x00\x40\x00" + b"Mode: follower\nLatency min/avg/max: 0/1.2.3/4\nOutstanding: 1\n" * 400
        )


def trickling(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x00\x25")
    while True:
        connection.sendall(b"x")
        connection.settimeout(0.1)
        with suppress(TimeoutError):
            connection.recv(1)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (silent, "it has not answered in 0.5 s"),
        (garbage, "it does not speak ZooKeeper's protocol"),
        (endless, "it does not speak ZooKeeper's protocol"),
        (trickling, "it has not answered in 0.5 s"),
    ],
)
def test_a_server_that_is_no_zookeeper_is_not_waited_for(
    behaviour: Callable[[socket.socket], None], reason: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it answers, or never does: nothing passes that needs an answer."""
    monkeypatch.setattr(server_probe, "_SECONDS", 0.5)
    monkeypatch.setattr(ensemble_probe, "_SECONDS", 3.0)
    with answering(behaviour) as address:
        begun = time.monotonic()
        found = findings(address, place)
        assert time.monotonic() - begun < 7 + LOADED_MACHINE_SECONDS
    assert verdicts(found, PASS) == {"shared_cluster_id"}
    assert verdicts(found, RISK) == set()
    assert reason in found["zookeeper_servers"].text
    assert all(each.text.isprintable() for each in found.values())


def test_one_strange_server_beside_a_good_one(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and all else is read."""
    assert orders.leader
    monkeypatch.setattr(server_probe, "_SECONDS", 1.0)
    with answering(silent) as address:
        found = findings(f"{shared_zookeeper.address},{address}", place)
    assert found["zookeeper_servers"].text == (
        f"1 of 2 servers opened no session: {address} (it has not answered in 1 s)"
    )
    assert found["standby"].verdict is PASS


def test_what_is_late_passes_nothing(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither after the time for all of it, nor after `stop`. That blames no server."""
    assert orders.leader
    monkeypatch.setattr(ensemble_probe, "_SECONDS", 0.0)
    monkeypatch.setattr(ensemble_probe, "_SERVERS_SECONDS", -1.0)
    late = findings(shared_zookeeper.address, place)
    assert verdicts(late, PASS) == {"shared_cluster_id"}
    assert verdicts(late, RISK) == set()
    monkeypatch.undo()
    cluster = ZooKeeperSettings(shared_zookeeper.address, f"/flink/{place}", place, 10.0, 5.0, True)
    probe = EnsembleProbe(cluster, lambda: 0)
    probe.stop()
    facts = probe.read()
    stopped = {name: check(facts).verdict for name, check in ZOOKEEPER_CHECKS.items()}
    assert {name for name, verdict in stopped.items() if verdict is not UNKNOWN} == {"shared_cluster_id"}


def test_a_host_without_a_port_is_zookeeper_s_own_port(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for Flink: the configuration keeps it without."""
    monkeypatch.setattr(ensemble_probe, "_SECONDS", 0.0)
    asked: list[Any] = []

    def refuse(_security: Any, address: tuple[str, int], host: str, _timeout: float) -> socket.socket:
        asked.append((address, host))
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("sidecar.drivers.zookeeper.security.Security.connect", refuse)
    findings("127.0.0.1,[::1]:2182", place)
    assert {(("127.0.0.1", 2181), "127.0.0.1"), (("::1", 2182), "::1")} <= {*asked}


def test_servers_with_tls(tmp_path: Path, flink_2_home: Path, java: Path, place: str) -> None:
    """They are asked as the driver asks them; without TLS they are not reached, and nothing passes."""
    authority = Authority(tmp_path / "authority")
    identity = authority.issue("server", "IP:127.0.0.1")
    secured = SecuredZooKeeper(
        tmp_path / "server", flink_2_home, java, authority, identity, config="ssl.clientAuth=none\n"
    )
    with serving(secured) as server, led(server.address, place):
        found = findings(server.secure_address, place, tls=TlsSettings(authority.ca))
        assert verdicts(found, RISK) == {"ensemble_size", "open_acls"}
        assert found["zookeeper_servers"].verdict is PASS
        plain = findings(server.secure_address, place)
    assert verdicts(plain, PASS) == {"shared_cluster_id"}
