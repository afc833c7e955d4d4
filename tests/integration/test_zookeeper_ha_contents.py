"""The checks over what Flink keeps in a real ZooKeeper: contenders, ACLs, and what clusters and jobs left behind."""

from contextlib import ExitStack
from typing import Final

import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from sidecar.core.bounds import STORE_LIST
from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.moment import SECOND
from sidecar.drivers.zookeeper import ensemble_probe
from tests.kit.cluster import JOB, A
from tests.kit.commands_scene import JobManagers
from tests.kit.fake_flink import Flink
from tests.kit.waiting import wait_for
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.kit.zookeeper_findings import DIGEST, contend, creator, findings, led, verdicts
from tests.lab.zookeeper import ZooKeeper

PASS, RISK, UNKNOWN = CheckVerdict.PASS, CheckVerdict.RISK, CheckVerdict.UNKNOWN
DAY: Final = 86_400 * SECOND
TWO_DAYS: Final = 2 * DAY
OTHER_JOB: Final = "b" * 32


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
        result = findings(address, place, later=TWO_DAYS)["leftover_clusters"]
    assert result.verdict is RISK
    assert result.text.startswith("4 clusters that nobody leads: dead-Z1 (last written 2 d ago), dead-Z2 (")
    assert f"deleteall {root}/dead-Z1; deleteall {root}/dead-Z2; " in result.advice


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
        result = findings(address, place, later=TWO_DAYS)["leftover_jobs"]
    assert result.verdict is RISK
    assert result.text.startswith("2 jobs with checkpoints that Flink would not recover: ")
    assert JOB not in result.text + result.advice
    assert f"deleteall {namespace}/jobs/{OTHER_JOB}; deleteall {namespace}/checkpoints/{OTHER_JOB}" in result.advice


def test_a_list_that_is_too_long_is_unknown_and_the_other_checks_are_made(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the cluster, or in one beside it: its length is asked for first, and an answer that is longer all the same is an error."""
    assert orders.leader
    address, root = shared_zookeeper.address, f"/flink/{place.rpartition('/')[0]}"
    with connected(address) as client:
        for made in [client.create_async(f"{root}/{number:02}{'x' * 100}", makepath=True) for number in range(60)]:
            made.get(timeout=20)
        for bound, text in (("STORE_LIST", "children, more than 50"), ("_MOST_BYTES", "its answer is longer than")):
            with monkeypatch.context() as few:
                if bound == "STORE_LIST":
                    few.setattr(ensemble_probe, bound, STORE_LIST._replace(most_items=50))
                else:
                    few.setattr("sidecar.drivers.zookeeper.persistent._MOST_BYTES", 1 << 10)
                found = findings(address, place)
            assert (found["leftover_clusters"].verdict, text in found["leftover_clusters"].text) == (UNKNOWN, True)
            assert (found["standby"].verdict, found["leftover_jobs"].verdict) == (PASS, PASS)


def test_more_clusters_than_are_looked_at_are_unknown(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them would be a wrong answer."""
    assert orders.leader
    monkeypatch.setattr(ensemble_probe, "_MOST_SIBLINGS", 0)
    found = findings(shared_zookeeper.address, place)["leftover_clusters"]
    assert (found.verdict, found.text.endswith("has 1 children, more than 0")) == (UNKNOWN, True)
