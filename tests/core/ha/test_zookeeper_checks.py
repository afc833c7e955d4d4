"""Each check over ZooKeeper's facts: PASS on a good ensemble, RISK with the fault, UNKNOWN where the fact cannot be read."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.ha.finding import CheckVerdict, UnknownFact
from sidecar.core.ha.flink_checks import FlinkFacts
from sidecar.core.ha.results import results
from sidecar.core.ha.zookeeper_checks import (
    ZOOKEEPER_CHECKS,
    EnsembleMember,
    Leftover,
    Mode,
    Server,
    ServerReport,
    ZooKeeperFacts,
)
from sidecar.core.moment import SECOND, parsed
from tests.kit.hostile import texts

PASS, RISK, UNKNOWN = CheckVerdict.PASS, CheckVerdict.RISK, CheckVerdict.UNKNOWN
HIDDEN: Final = UnknownFact("no permission to read it in ZooKeeper")
DOWN: Final = UnknownFact("Connection refused")
SILENT: Final = UnknownFact("zk-3:2181 does not answer srvr: no answer")
NOW: Final = parsed("2026-11-26T12:00:00Z")
DAY: Final = 86_400 * SECOND
JOB: Final = "a" * 32


def server(number: int, mode: Mode = Mode.FOLLOWER, **changes: Any) -> Server:
    """One that serves and answers."""
    return replace(Server(f"zk-{number}:2181", 60.0, ServerReport(mode, 0.4, 0, "3.8.4")), **changes)


def down(number: int) -> Server:
    return server(number, timeout=DOWN, report=DOWN)


def not_asked(number: int) -> Server:
    reason = UnknownFact("it was not asked: 20 s are over")
    return server(number, timeout=reason, report=reason, asked=False)


def members(voting: int, observers: int = 0) -> tuple[EnsembleMember, ...]:
    return tuple(EnsembleMember(n, f"zk-{n}", n <= voting) for n in range(1, voting + observers + 1))


THREE: Final = (server(1, Mode.LEADER), server(2), server(3))
ALONE: Final = {"servers": (server(1, Mode.STANDALONE),), "members": ()}


def facts(**changes: Any) -> ZooKeeperFacts:
    """A good cluster in an ensemble of three."""
    good = ZooKeeperFacts(
        namespace="/flink/orders",
        read_at=NOW,
        requested_timeout=60.0,
        is_flinks_timeout=True,
        servers=THREE,
        members=members(3),
        contenders=2,
        zxid=(7 << 32) + 1000,
        writable_by_all={"/flink/orders": False, "/flink/orders/leader": False},
        left_clusters=(),
        left_jobs=(),
    )
    return replace(good, **changes)


def left(path: str, days: float = 3) -> Leftover:
    return Leftover(path, path.rpartition("/")[2], NOW - round(days * DAY))


CASES: Final = [
    # check, what is changed, verdict, words
    ("standby", {}, PASS, "2 JobManagers contend for leadership"),
    ("standby", {"contenders": 1}, RISK, "one JobManager contends for leadership"),
    ("standby", {"contenders": 0}, UNKNOWN, "no JobManager contends for leadership: the cluster does not run"),
    ("standby", {"contenders": HIDDEN}, UNKNOWN, "no permission"),
    ("zookeeper_servers", {}, PASS, "3 of 3 servers opened a session"),
    (
        "zookeeper_servers",
        {"servers": (*THREE[:2], down(3))},
        *(RISK, "1 of 3 servers opened no session: zk-3:2181 (Connection refused)"),
    ),
    ("zookeeper_servers", {"servers": (server(1), down(2), not_asked(3))}, RISK, "2 of 3 servers opened no session"),
    (
        "zookeeper_servers",
        {"servers": (*THREE[:2], not_asked(3))},
        *(UNKNOWN, "1 of 3 servers were not asked: zk-3:2181 (it was not asked: 20 s are over)"),
    ),
    (
        "zookeeper_servers",
        {"servers": (down(1), down(2))},
        *(UNKNOWN, "no server opened a session for this sidecar: zk-1:2181 (Connection refused), zk-2:2181"),
    ),
    ("ensemble_size", {}, PASS, "the ensemble has 3 voting servers, and survives the loss of 1 server"),
    ("ensemble_size", {"members": members(5, 2)}, PASS, "5 voting servers, and survives the loss of 2 servers"),
    ("ensemble_size", ALONE, RISK, "ZooKeeper is one server, without an ensemble"),
    ("ensemble_size", {"members": ()}, RISK, "ZooKeeper is one server, without an ensemble"),
    ("ensemble_size", {"members": members(2, 1)}, RISK, "the ensemble has 2 voting servers"),
    (
        "ensemble_size",
        {"members": members(4)},
        RISK,
        "4 voting servers, and survives the loss of 1 server, as one with 3",
    ),
    ("ensemble_size", {"members": HIDDEN}, UNKNOWN, "no permission"),
    ("failure_tolerance", {}, PASS, "3 of 3 voting servers serve: 1 may still fail"),
    ("failure_tolerance", {"servers": (*THREE[:2], down(3))}, RISK, "2 of 3 voting servers serve: 0 may still fail"),
    (
        "failure_tolerance",
        {"servers": (*THREE, server(4, Mode.OBSERVER)), "members": members(3, 1)},
        *(PASS, "3 of 3 voting servers serve: 1 may still fail"),
    ),
    (
        "failure_tolerance",
        {"servers": (*THREE[:2], server(3, report=SILENT))},
        *(UNKNOWN, "only 2 of 3 voting servers are known to serve: zk-3:2181 does not answer srvr"),
    ),
    (
        "failure_tolerance",
        {"servers": (*THREE[:2], not_asked(3))},
        *(UNKNOWN, "only 2 of 3 voting servers are known to serve: it was not asked"),
    ),
    (
        "failure_tolerance",
        {"servers": (server(1), down(2), down(3))},
        *(UNKNOWN, "only 1 of 3 voting servers are known to serve: Connection refused"),
    ),
    (
        "failure_tolerance",
        {"servers": THREE[:2]},
        *(UNKNOWN, "only 2 of 3 voting servers are known to serve: the connection string does not name all servers"),
    ),
    ("failure_tolerance", ALONE, UNKNOWN, "too small to survive the loss of a server: see ensemble_size"),
    ("failure_tolerance", {"members": HIDDEN}, UNKNOWN, "no permission"),
    ("connection_string", {}, PASS, "the connection string names 3 servers"),
    ("connection_string", ALONE, PASS, "the connection string names 1 server"),
    ("connection_string", {"servers": THREE[:1]}, RISK, "the connection string names 1 of 3 servers: zk-1:2181"),
    (
        "connection_string",
        {"servers": (server(4, Mode.OBSERVER), server(5, Mode.OBSERVER)), "members": HIDDEN},
        *(RISK, "all servers of the connection string are observers"),
    ),
    ("connection_string", {"members": HIDDEN}, UNKNOWN, "no permission"),
    ("session_timeout", {}, PASS, "Flink's session timeout of 60 s is granted"),
    (
        "session_timeout",
        {"servers": (*THREE[:2], server(3, timeout=20.0))},
        *(RISK, "Flink asks for sessions of 60 s and gets 20 s from zk-3:2181"),
    ),
    (
        "session_timeout",
        {"servers": (server(1, timeout=2.0), server(2, timeout=4.0)), "requested_timeout": 2.0},
        *(RISK, "Flink asks for sessions of 2 s and gets 4 s from zk-2:2181"),
    ),
    (
        "session_timeout",
        {"is_flinks_timeout": False, "servers": (server(1, timeout=20.0),)},
        *(
            UNKNOWN,
            "Flink's configuration was not read; zk-1:2181 grants sessions of up to 20 s, Flink's default is 60 s",
        ),
    ),
    ("session_timeout", {"servers": (down(1), down(2))}, UNKNOWN, "no server opened a session"),
    ("zxid_headroom", {}, PASS, "0% of the transactions of this epoch are used"),
    ("zxid_headroom", {"zxid": (7 << 32) + 0xF0000000}, RISK, "94% of the transactions of this epoch are used"),
    ("zxid_headroom", {"zxid": HIDDEN}, UNKNOWN, "no permission"),
    ("server_load", {}, PASS, "latency and outstanding requests are low"),
    (
        "server_load",
        {"servers": (*THREE[:2], server(3, report=ServerReport(Mode.FOLLOWER, 140.5, 0)))},
        *(RISK, "slow: zk-3:2181 (140.5 ms on average, 0 outstanding)"),
    ),
    (
        "server_load",
        {"servers": (server(1, report=SILENT), server(2, report=ServerReport(Mode.LEADER, 1.0, 500)))},
        *(RISK, "slow: zk-2:2181 (1 ms on average, 500 outstanding)"),
    ),
    (
        "server_load",
        {"servers": (*THREE[:2], server(3, report=SILENT))},
        *(UNKNOWN, "1 of 3 servers did not report it: zk-3:2181 does not answer srvr"),
    ),
    ("open_acls", {}, PASS, "only known identities may change Flink's znodes"),
    ("open_acls", {"writable_by_all": {"/flink/orders": True, "/x": False}}, RISK, "anybody may change /flink/orders"),
    ("open_acls", {"writable_by_all": {}}, UNKNOWN, "none of Flink's znodes exists"),
    ("open_acls", {"writable_by_all": HIDDEN}, UNKNOWN, "no permission"),
    ("shared_cluster_id", {}, PASS, "the cluster has a place of its own: /flink/orders"),
    (
        "shared_cluster_id",
        {"namespace": "/flink/default"},
        UNKNOWN,
        "this cluster has Flink's default id, /flink/default",
    ),
    ("leftover_clusters", {}, PASS, "no cluster that nobody leads"),
    ("leftover_clusters", {"left_clusters": (left("/flink/new", 0.9),)}, PASS, "no cluster that nobody leads"),
    (
        "leftover_clusters",
        {"left_clusters": (left("/flink/new", 0.9), left("/flink/b"), left("/flink/a", 9))},
        *(RISK, "2 clusters that nobody leads: a (last written 9 d ago), b (last written 3 d ago)"),
    ),
    (
        "leftover_clusters",
        {"left_clusters": (left("/flink/new", 0.9), Leftover("/flink/theirs", "theirs", HIDDEN))},
        *(UNKNOWN, "/flink/theirs: no permission to read it in ZooKeeper"),
    ),
    (
        "leftover_clusters",
        {"left_clusters": (left("/flink/old"), Leftover("/flink/theirs", "theirs", HIDDEN))},
        *(RISK, "1 cluster that nobody leads: old (last written 3 d ago)"),
    ),
    ("leftover_clusters", {"left_clusters": HIDDEN}, UNKNOWN, "no permission"),
    ("leftover_jobs", {}, PASS, "no job with checkpoints that Flink would not recover"),
    (
        "leftover_jobs",
        {"left_jobs": (left(f"/flink/orders/jobs/{JOB}"),)},
        *(RISK, f"1 job with checkpoints that Flink would not recover: {JOB} (last written 3 d ago)"),
    ),
    ("leftover_jobs", {"left_jobs": HIDDEN}, UNKNOWN, "no permission"),
]

NEVER: Final = {
    ("shared_cluster_id", RISK): "nobody can see whether another cluster uses the same id: the default id is UNKNOWN"
}
"""Verdicts that a check does not have, and why."""


@pytest.mark.parametrize(("check", "changes", "verdict", "words"), CASES)
def test_a_check_over_facts(check: str, changes: dict[str, Any], verdict: CheckVerdict, words: str) -> None:
    """The verdict, and what it rests on."""
    finding = ZOOKEEPER_CHECKS[check](facts(**changes))
    assert (finding.verdict, words in finding.text) == (verdict, True), finding.text
    assert bool(finding.advice) == (verdict is RISK)


def test_each_check_has_all_verdicts() -> None:
    """None of them can only pass, and none passes where the fact is hidden, but for what is said above."""
    cases = {(check, verdict) for check, _, verdict, _ in CASES}
    assert cases.isdisjoint(NEVER)
    assert cases | {*NEVER} == {(check, verdict) for check in ZOOKEEPER_CHECKS for verdict in CheckVerdict}


def test_what_removes_leftovers_has_plain_paths_alone() -> None:
    """Others choose the names: one with blanks, quotes or invisible characters would be another command."""
    names = ("plain", 'a" /flink/orders', "a b", "a;b", "a\nquit", "\u202ea", "x" * 300)
    finding = ZOOKEEPER_CHECKS["leftover_clusters"](
        facts(left_clusters=tuple(left(f"/flink/{name}", 9 - n) for n, name in enumerate(names)))
    )
    assert finding.advice.endswith(" In zkCli.sh: deleteall /flink/plain")
    odd = ZOOKEEPER_CHECKS["leftover_clusters"](facts(left_clusters=(left("/flink/a b"),)))
    assert (odd.verdict, "zkCli.sh" in odd.advice) == (RISK, False)


def unknown_or(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return values | texts().map(UnknownFact)


LEFT: Final = st.lists(
    st.builds(Leftover, texts(), texts(), st.integers(0, NOW) | texts().map(UnknownFact)), max_size=8
).map(tuple)
REPORTS: Final = st.builds(ServerReport, st.sampled_from(Mode), st.floats(0, 1e10), st.integers(0, 10**10), texts())
HOSTILE: Final = st.builds(
    ZooKeeperFacts,
    namespace=texts(),
    read_at=st.just(NOW),
    requested_timeout=st.floats(0, 1e9),
    is_flinks_timeout=st.booleans(),
    servers=st.lists(
        st.builds(Server, texts(), unknown_or(st.floats(0.001, 1e7)), unknown_or(REPORTS), st.booleans()),
        min_size=1,
        max_size=8,
    ).map(tuple),
    members=unknown_or(
        st.lists(st.builds(EnsembleMember, st.integers(0), texts(), st.booleans()), max_size=8).map(tuple)
    ),
    contenders=unknown_or(st.integers(0, 10**9)),
    zxid=unknown_or(st.integers(0, 1 << 63)),
    writable_by_all=unknown_or(st.dictionaries(texts(), st.booleans(), max_size=8)),
    left_clusters=unknown_or(LEFT),
    left_jobs=unknown_or(LEFT),
)


@given(HOSTILE)
def test_texts_are_bounded_printable_lines(read: ZooKeeperFacts) -> None:
    """Whatever others call their znodes and answer; and no check fails over it."""
    checks = results(read, FlinkFacts(options=UnknownFact("")))
    assert {*ZOOKEEPER_CHECKS} <= {result.check for result in checks}
    for result in checks:
        assert result.text.isprintable()
        assert result.advice.isprintable()
        assert max(len(result.text), len(result.advice)) <= 1001
        assert "the check failed" not in result.text
