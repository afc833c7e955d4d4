"""Flink's own listener and `watch --view flink`, side by side on a real cluster: the same calls, component by component.

Compared are the whole sequences of (address, session id), phase by phase, for both states of the connection that may clear a leader.
Nothing is left out and nothing is put in order first. That this can be asked for at all, the phases see to:

- Two listeners that come back at different moments rightly hear of different things: one may find B where the other one saw A go and B
  come. So all are kept at the gate until ZooKeeper serves again, and the JobManagers sleep until everything was read.
- Flink's listener is notified from its cache in one thread, as soon as the connection is back, while another thread reads anew. When the
  leader has changed meanwhile, the second is sometimes faster. For that component the call from the cache then falls out, or it comes
  last, and Flink's listener keeps a leader that is gone until the next one comes. We always make it first. In the phase `REPLACED`, and
  only there, Flink's listener may lack this one call, or be late with it.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from sidecar.core.flink.leadership import LeaderInformation, decode_connection_info
from tests.core.views.test_flink_view import NULL, Call
from tests.kit.flink_listener import flink_listener
from tests.kit.relay import Gate
from tests.kit.sidecar_process import COMMAND
from tests.kit.waiting import PATIENCE_SECONDS, until, wait_for
from tests.lab.distribution import flink_home
from tests.lab.flink import Lab
from tests.lab.java import java_environment
from tests.lab.lab_error import LabError
from tests.lab.managers import JobManager
from tests.lab.processes import Process
from tests.lab.settings import CLUSTER_ID, PATH_ROOT

pytestmark = [pytest.mark.e2e]

SESSION_SECONDS = 10
"""Of the listeners and of the JobManagers: an outage of 2 s must not outlast it, however busy the machine is."""
OUTAGE_SECONDS = 2.0
STILL_SECONDS = 0.25


Calls = dict[str, list[Call]]
"""By component."""
Leaders = Mapping[str, Call]
"""By component, as they stand in ZooKeeper."""


class Listener:
    """A program that prints what one listener for each component is notified of."""

    def __init__(self, name: str, folder: Path, command: list[str]) -> None:
        self.process = Process(name, command, folder / f"{name}.log", java_environment())
        self._page_start = 0

    def turn_page(self) -> None:
        """What was notified until now is no longer of interest."""
        self._page_start = len(self._calls())

    def page(self) -> Calls:
        """What was notified since then."""
        calls = Calls()
        for component, call in self._calls()[self._page_start :]:
            calls.setdefault(component, []).append(call)
        return calls

    def last(self) -> dict[str, Call]:
        return dict(self._calls())

    def _calls(self) -> list[tuple[str, Call]]:
        assert self.process.running, f"{self.process.log} ends with: {self.process.last_words()}"
        lines = self.process.log.read_text().splitlines(keepends=True)
        calls = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [(call["component"], Call(call["leader_address"], call["leader_session_id"])) for call in calls]


class Pair(NamedTuple):
    """Two listeners that leaders are cleared for by the same state of the connection."""

    flinks: Listener
    ours: Listener


class Heard(NamedTuple):
    """What both listeners of a pair were notified of in one phase, and who led before and after it."""

    flinks: Calls
    ours: Calls
    before: Leaders
    after: Leaders


class SideBySide:
    """A Flink cluster, and behind a gate to its ZooKeeper two pairs of listeners."""

    def __init__(self, lab: Lab, flinks_command: list[str], folder: Path) -> None:
        self.lab = lab
        job = lab.submit_job(wait_for_checkpoint=False)
        names = ("resource_manager", "dispatcher", "rest_server")
        self._paths = {**{name: f"/leader/{name}" for name in names}, "job": f"/leader/job-{job}"}
        self.gate = Gate(lab.zookeeper.address, lab.zookeeper.is_ready)
        self.pairs = {
            policy: self._pair(folder / policy, flinks_command, tolerate)
            for policy, tolerate in (("SUSPENDED", "false"), ("LOST", "true"))
        }
        self.listeners = [listener for pair in self.pairs.values() for listener in pair]
        self.heard: dict[tuple[str, str], Heard] = {}
        self._leaders: Leaders = {}

    def _pair(self, folder: Path, flinks_command: list[str], tolerate: str) -> Pair:
        """Both are given the same settings: Flink's own."""
        client = "high-availability.zookeeper.client"
        settings = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": self.gate.address,
            "high-availability.zookeeper.path.root": PATH_ROOT,
            "high-availability.cluster-id": f"/{CLUSTER_ID}",
            f"{client}.session-timeout": f"{SESSION_SECONDS} s",
            f"{client}.tolerate-suspended-connections": tolerate,
        }
        folder.mkdir(parents=True)
        (folder / "flink-conf.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        dynamic = (f"-D{key}={value}" for key, value in settings.items())
        watch = (*COMMAND, "watch", "--view", "flink", "--output", "json", "--flink-conf", str(folder))
        return Pair(
            Listener("flinks", folder, [*flinks_command, *dynamic, *self._paths.values()]),
            Listener("ours", folder, [*watch]),
        )

    def start(self) -> None:
        """Start the listeners; all know all leaders when it returns."""
        for listener in self.listeners:
            listener.process.start()
        self._leaders = wait_for("all to know the first leaders", self._known_leaders)

    def stop(self) -> None:
        for listener in self.listeners:
            listener.process.stop()
        self.gate.close()

    def phase(self, name: str, act: Callable[["SideBySide"], None]) -> None:
        """Do something to the cluster or to the listeners, wait until all know the leaders, and keep what they were notified of."""
        before = self._leaders
        for listener in self.listeners:
            listener.turn_page()
        act(self)
        # Who does not know them in time is seen from what it was notified of.
        until(lambda: self._known_leaders(overtaken=name == REPLACED), PATIENCE_SECONDS)
        self._leaders = wait_for(f"one to lead everything: {name}", self._standing)
        for policy, pair in self.pairs.items():
            self.heard[name, policy] = Heard(pair.flinks.page(), pair.ours.page(), before, self._leaders)

    def leader_with_standby(self) -> JobManager:
        """The leader, once every other JobManager could take over."""
        leader = self.lab.wait_for_leader()
        for jobmanager in self.lab.jobmanagers:
            jobmanager.await_ready()
        return leader

    def wait_cleared(self, *policies: str) -> None:
        """Wait until these pairs have heard of each component that it has no leader."""
        self._wait_last(dict.fromkeys(self._paths, NULL), policies)

    def wait_leaders_again(self, *policies: str) -> None:
        """Wait until these pairs have heard of the leaders that there were before this phase."""
        self._wait_last(self._leaders, policies)

    def _wait_last(self, expected: Leaders, policies: Iterable[str]) -> None:
        listeners = [listener for policy in policies for listener in self.pairs[policy]]
        wait_for(f"{expected} to be heard", lambda: all(listener.last() == expected for listener in listeners))

    def wait_read(self) -> None:
        """Wait until all listeners are connected and have read what they want to read."""
        wait_for("the listeners to have read", lambda: self.gate.is_still(len(self.listeners), STILL_SECONDS))

    def wait_new_leaders(self) -> None:
        wait_for("new leaders", lambda: (now := self._standing()) and not now.items() & self._leaders.items())

    def _known_leaders(self, *, overtaken: bool = False) -> Leaders | None:
        """Who leads, once all were notified of it last, or with `overtaken` Flink's listeners at any time of this phase."""
        leaders = self._standing()
        agreed = leaders and all(
            pair.ours.last() == leaders
            and (pair.flinks.last() == leaders or (overtaken and _has_all_calls(leaders, pair.flinks.page())))
            for pair in self.pairs.values()
        )
        return leaders if agreed and self.gate.is_still(len(self.listeners), STILL_SECONDS) else None

    def _standing(self) -> Leaders | None:
        """Who leads, once one process leads everything: since 1.15 it has one leader session id."""
        calls = {}
        for component, path in self._paths.items():
            try:
                node = self.lab.zookeeper.read(f"{PATH_ROOT}/{CLUSTER_ID}{path}/connection_info")
            except LabError:
                return None
            leader = decode_connection_info(node[0]) if node else None
            if not isinstance(leader, LeaderInformation):
                return None
            calls[component] = Call(leader.address, str(leader.session_id))
        return calls if len({leader.session_id for leader in calls.values()}) == 1 else None


def _has_all_calls(leaders: Leaders, calls: Calls) -> bool:
    return all(call in calls.get(component, []) for component, call in leaders.items())


# -- phases ------------------------------------------------------------------------------------------------------------


def cut_off(side: SideBySide) -> None:
    side.gate.shut()
    time.sleep(OUTAGE_SECONDS)
    side.wait_cleared("SUSPENDED")
    side.gate.open()
    side.wait_leaders_again("SUSPENDED")


def zookeeper_down(side: SideBySide) -> None:
    side.lab.zookeeper.kill()
    time.sleep(OUTAGE_SECONDS)
    side.wait_cleared("SUSPENDED")
    for jobmanager in side.lab.jobmanagers:
        jobmanager.pause()
    side.lab.zookeeper.start()
    side.wait_leaders_again("SUSPENDED")
    side.wait_read()
    for jobmanager in side.lab.jobmanagers:
        jobmanager.resume()
    side.wait_new_leaders()


def sigterm(side: SideBySide) -> None:
    leader = side.leader_with_standby()
    leader.terminate()
    leader.wait(20)
    side.wait_new_leaders()
    leader.launch()


def kill_9(side: SideBySide) -> None:
    leader = side.leader_with_standby()
    leader.kill()
    leader.launch()
    side.wait_new_leaders()


def replaced(side: SideBySide) -> None:
    side.gate.shut()
    sigterm(side)
    side.wait_cleared("SUSPENDED", "LOST")
    side.gate.open()


CUT_OFF, ZOOKEEPER_DOWN, SIGTERM = "listeners cut off for 2 s", "ZooKeeper down for 2 s", "SIGTERM of the leader"
KILL_9, REPLACED = "kill -9 of the leader", "leader replaced while the listeners are cut off until LOST"
PHASES = {CUT_OFF: cut_off, ZOOKEEPER_DOWN: zookeeper_down, SIGTERM: sigterm, KILL_9: kill_9, REPLACED: replaced}
SHAPES = {
    (CUT_OFF, "SUSPENDED"): {"0A"},
    (CUT_OFF, "LOST"): {""},
    (ZOOKEEPER_DOWN, "SUSPENDED"): {"0AB", "0A0B"},
    (ZOOKEEPER_DOWN, "LOST"): {"B", "0B"},
    (REPLACED, "SUSPENDED"): {"0AB"},
    (REPLACED, "LOST"): {"0AB"},
}
"""What a TaskManager lives through: no leader (0), the one before the phase (A), the one after it (B). Elsewhere it is A->null->B."""


@pytest.fixture(scope="module")
def heard(
    request: pytest.FixtureRequest, java: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Heard]]:
    """By phase and policy: what the listeners of one cluster, of the version asked for, heard while it lived through all phases."""
    folder = tmp_path_factory.mktemp(f"flink-{request.param}-")
    command = flink_listener(java, flink_home(request.param, print), folder)
    if command is None:
        pytest.skip(f"Flink's listener is compiled for this test, and there is no javac beside {java}")
    with Lab(folder / "lab", request.param, session_timeout=timedelta(seconds=SESSION_SECONDS)) as lab:
        lab.start()
        side = SideBySide(lab, command, folder)
        try:
            side.start()
            for name, act in PHASES.items():
                side.phase(name, act)
            yield side.heard
        finally:
            side.stop()


@pytest.mark.parametrize("policy", ["SUSPENDED", "LOST"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("heard", ["2.3.0", "1.20.5"], indirect=True)
def test_flinks_listener_and_ours_hear_the_same(heard: dict[tuple[str, str], Heard], phase: str, policy: str) -> None:
    """Whichever state of the connection clears a leader: the calls that this phase has to bring, and both alike."""
    flinks, ours, before, after = heard[phase, policy]
    for component in after:
        theirs, calls = flinks.get(component, []), ours.get(component, [])
        names = {NULL: "0", after[component]: "B", before[component]: "A"}
        shape, their_shape = ("".join(names.get(call, "?") for call in sequence) for sequence in (calls, theirs))
        comparison = f"{component}: ours {shape}, Flink's {their_shape}"
        assert shape in SHAPES.get((phase, policy), {"0B"}), comparison
        assert their_shape == shape or (phase == REPLACED and their_shape in {"0B", "0BA"}), comparison
    assert flinks.keys() | ours.keys() <= after.keys()
