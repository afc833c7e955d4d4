"""A published leader that does not answer, on the real thing: before its session ends, people know, and of no other leader."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from sidecar.core.cluster.cluster_state import RestServer
from sidecar.core.flink.leadership import Component, ComponentId, LeaderInformation
from sidecar.journal import JournalReader
from tests.kit.cluster import JobManager
from tests.kit.flink_rest_server import Answer, dropping
from tests.kit.flink_rest_server import RestServer as Rest
from tests.kit.leaders import Leaders
from tests.kit.pictured_flink import pictured
from tests.kit.receivers import webhook
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import LOADED_MACHINE_SECONDS, wait_for
from tests.lab.flink import Lab
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

SESSION = timedelta(seconds=60)
"""Flink's default."""
PAUSE_SECONDS = 20.0
SEEN_SECONDS = 19.5
"""Until the next request, at the latest, and eight seconds: see docs/reference/rules.md."""
EVIDENCE = "evidence: {flink_rest: auto}"
SILENT, GONE, BACK = (
    f"the {words}: 127.0.0.1"
    for words in ("leader does not answer", "leader cannot be reached", "leader answers again")
)
"""First lines of messages."""
OVER = "does not lead any more"
"""In the message about the failover, or in one of its own."""

pytestmark = pytest.mark.e2e
Watch = Callable[..., tuple[Sidecar, HttpReceiver]]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Starts a sidecar with the shipped rules, which speaks for itself, at once; returns it and who gets its messages."""
    with ExitStack() as stack:

        def start(name: str, cluster: str) -> tuple[Sidecar, HttpReceiver]:
            people = stack.enter_context(webhook())
            lines = f"{cluster}\n{EVIDENCE}\nledger: {{mode: local}}"
            sidecar = Sidecar(tmp_path / name, lines, [people.url], observer=name, group_wait="0s", group_interval="1s")
            sidecar.start()
            stack.callback(sidecar.stop)
            sidecar.wait_ready()
            return sidecar, people

        yield start


def await_answer(sidecar: Sidecar, address: str) -> None:
    """Wait until the REST server at this address has answered the sidecar, and does."""

    def is_answered() -> bool:
        with closing(JournalReader(sidecar.state)) as reader:
            servers: list[RestServer | None] = [cluster.rest_server for cluster in reader.state().clusters.values()]
        return any(server and (server.leader.address, server.unanswered) == (address, None) for server in servers)

    wait_for("an answer of the leader's REST server", is_answered)


def await_message(people: HttpReceiver, title: str, seconds: float) -> float:
    """Wait for a message with this title, or line. When it came (seconds since the epoch)."""
    return wait_for(
        title,
        lambda: next((message.at for message in people.received if title in f"{message.title}\n{message.body}"), None),
        seconds,
    )


def test_a_leader_that_is_stopped_or_killed_is_known_before_its_session_ends(tmp_path: Path, watch: Watch) -> None:
    """SIGSTOP for 20 s: no failover, and an alert that is over when it answers again. kill -9: the failover comes later."""
    with Lab(tmp_path / "lab", session_timeout=SESSION) as lab:
        lab.start()
        leader = lab.wait_for_leader()
        sidecar, people = watch("jm-0", f"flink_conf_dir: {lab.conf_dir}")
        await_answer(sidecar, leader.rest_address)
        stopped_at = time.time()
        leader.pause()
        seen_at = await_message(people, SILENT, PAUSE_SECONDS + LOADED_MACHINE_SECONDS)
        wait_for("the end of the pause", lambda: time.time() - stopped_at >= PAUSE_SECONDS)
        leader.resume()
        await_message(people, BACK, PAUSE_SECONDS)
        assert seen_at - stopped_at < SEEN_SECONDS + LOADED_MACHINE_SECONDS
        assert lab.leading() is leader
        await_answer(sidecar, leader.rest_address)
        killed_at = time.time()
        leader.kill()
        seen_at = await_message(people, GONE, PAUSE_SECONDS + LOADED_MACHINE_SECONDS)
        over_at = await_message(people, OVER, SESSION.total_seconds() + LOADED_MACHINE_SECONDS)
        assert seen_at - killed_at < SEEN_SECONDS + LOADED_MACHINE_SECONDS < over_at - killed_at


class _Reachable(JobManager, frozen=True):
    """A JobManager whose REST server is at an address of this machine."""

    rest: str

    def leads(self, component: ComponentId) -> LeaderInformation:
        leader = super().leads(component)
        if component.component is Component.REST_SERVER:
            return LeaderInformation(self.rest, leader.session_id)
        return leader


class _ReachableLeaders(Leaders):
    """Leaders whose REST servers are at the given addresses."""

    def __init__(self, address: str, *rests: str) -> None:
        super().__init__(address)
        self._rests = rests

    def elect(self) -> None:
        self.term += 1
        rest = self._rests[self.term - 1]
        self._flink.elect(_Reachable(self.present, UUID(int=self.term), self.term, rest))


def test_a_dropped_port_is_reported_by_the_sidecar_that_was_answered_and_by_no_other(
    zookeeper: ZooKeeper, watch: Watch
) -> None:
    """For another sidecar it was dropped from the start: it never says so, though it hears of the first one's from the store."""
    cluster = f"zookeeper: {{quorum: '{zookeeper.address}'}}"
    with ExitStack() as stack:
        rest = Rest(pictured(other={"/jobs/overview": Answer({"jobs": []})}))
        successor = stack.enter_context(dropping())
        leaders = _ReachableLeaders(zookeeper.address, rest.address, successor)
        with rest:
            leaders.start()
            stack.callback(leaders.stop)
            sidecar, people = watch("answered", cluster)
            await_answer(sidecar, rest.address)
        stack.enter_context(dropping(int(rest.address.rpartition(":")[2])))
        dropped_at = time.time()
        _, others = watch("never-answered", cluster)
        seen_at = await_message(people, GONE, PAUSE_SECONDS + LOADED_MACHINE_SECONDS)
        assert seen_at - dropped_at < SEEN_SECONDS + LOADED_MACHINE_SECONDS
        leaders.fail_over()
        await_message(people, "does not lead any more since", PAUSE_SECONDS)
        await_message(others, "failed over", PAUSE_SECONDS)
        wait_for("twice the time in which a silence is seen", lambda: time.time() - dropped_at > 2 * SEEN_SECONDS)
        assert not [message.title for message in others.received if "cannot be reached" in message.title]
        assert len([message for message in people.received if "cannot be reached" in message.title]) == 1
