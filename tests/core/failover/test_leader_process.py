"""An end belongs to the process that ended, by its port. One that lives has not ended; one that took over and died is said."""

from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from sidecar.core.failover.causes import Cause, Confidence
from sidecar.core.flink.leadership import Component, ComponentId, LeaderInformation
from sidecar.core.moment import SECOND
from sidecar.core.observations import LogEndRead, ProcessEnded, ProcessSeen
from sidecar.core.process_end import LogEnd, ProcessEnd, RunningProcess
from sidecar.core.records import Death
from tests.kit.cluster import CLUSTER, START, JobManager
from tests.kit.core_sidecar import POLICY, watching


class OnOneMachine(JobManager, frozen=True):
    """A JobManager at 127.0.0.1, with ports of its own."""

    port: int

    def leads(self, component: ComponentId) -> LeaderInformation:
        """At its RPC port, and its REST server at the next one."""
        if component.component is Component.REST_SERVER:
            return LeaderInformation(f"http://127.0.0.1:{self.port + 1}", self.session_id)
        name = component.component.value.replace("_", "")
        return LeaderInformation(f"pekko.tcp://flink@127.0.0.1:{self.port}/user/rpc/{name}_0", self.session_id)

    @property
    def runs(self) -> RunningProcess:
        """Its process, with its port as its number."""
        return RunningProcess(self.port, START - 3600 * SECOND, (self.port, self.port + 1))


JM_0: Final = OnOneMachine("127.0.0.1", uuid4(), 7, 24020)
JM_1: Final = OnOneMachine("127.0.0.1", uuid4(), 8, 24030)
HERE: Final = replace(POLICY, own_hosts=frozenset({"127.0.0.1"}))


class Machine:
    """Two JobManagers on one machine, of which JM_1 leads, and a sidecar that observes their processes."""

    def __init__(self) -> None:
        self.flink, self.sidecar = watching(JM_1, policy=HERE)
        for manager in (JM_0, JM_1):
            self.runs(manager)

    def runs(self, manager: OnOneMachine, *, stopped: bool = False) -> None:
        seen = replace(manager.runs, is_stopped=stopped)
        self.sidecar.observe(ProcessSeen(self.sidecar.moment, CLUSTER, seen))

    def ends(self, manager: OnOneMachine, code: int, log: str | None = None) -> None:
        """The process ends now; the kernel counted no kill for memory."""
        now, process = self.sidecar.moment, manager.runs
        end = ProcessEnd(process.pid, now.wall, exit_code=code, oom_kills=0, ports=process.ports)
        self.sidecar.observe(ProcessEnded(now, CLUSTER, end))
        if log:
            read = LogEnd("flink.log", log, pid=process.pid)
            self.sidecar.observe(LogEndRead(self.sidecar.moment, CLUSTER, read))

    def vacates(self) -> None:
        self.sidecar.sees(self.flink.vacate())

    def elects(self, manager: JobManager) -> None:
        self.sidecar.sees(self.flink.elect(manager))

    def deaths(self) -> list[Death]:
        return [record for record in self.sidecar.records if isinstance(record, Death)]


def test_the_end_of_the_next_leader_is_not_that_of_the_one_before() -> None:
    """Killed by -9, and 29 s after the loss the one that took over ends itself: 137 is the first one's, 239 the other's."""
    machine = Machine()
    machine.ends(JM_1, 137)
    machine.sidecar.waits(25)
    machine.vacates()
    machine.elects(JM_0)
    machine.sidecar.waits(4)
    machine.ends(JM_0, 239)
    machine.sidecar.waits(40)
    (death,) = machine.deaths()
    assert (death.reason, death.confidence, death.exit_code) == ("killed", "high", 137)


def status(machine: Machine) -> str:
    """Of the cluster, with its sentence."""
    stated = machine.sidecar.waits(1).state.clusters[CLUSTER].stated
    assert stated
    return f"{stated.status}: {stated.sentence}"


def test_a_leader_whose_process_has_ended_does_not_lead_though_it_is_published() -> None:
    """Until its session ends it is silent, from that moment on, also while the next one starts at its port; that one is not, nor is one
    beside it that has ended."""
    machine = Machine()
    machine.ends(JM_0, 143)
    assert status(machine).startswith("UNCHECKED: 127.0.0.1:24030 leads")
    machine.ends(JM_1, 137)
    assert status(machine) == "SILENT: 127.0.0.1:24030 ended with exit code 137, it is still published as leader"
    again = OnOneMachine("127.0.0.1", uuid4(), 9, 24030)
    started = replace(again.runs, started_at=machine.sidecar.now)
    machine.sidecar.observe(ProcessSeen(machine.sidecar.moment, CLUSTER, started))
    assert status(machine) == "SILENT: 127.0.0.1:24030 ended with exit code 137, it is still published as leader"
    machine.vacates()
    assert status(machine).startswith("DOWN: no leader")
    machine.elects(again)
    assert status(machine).startswith("UNCHECKED: 127.0.0.1:24030 leads")


def test_of_one_whose_end_was_not_observed_the_end_of_another_says_nothing() -> None:
    """It was started before the sidecar could see it; the next leader's end is known by its port."""
    machine = Machine()
    machine.sidecar.observe(ProcessEnded(machine.sidecar.moment, CLUSTER, ProcessEnd(1, machine.sidecar.now, 0)))
    machine.sidecar.waits(200)
    machine.vacates()
    machine.elects(JM_0)
    machine.sidecar.waits(20)
    machine.ends(JM_0, 239)
    machine.sidecar.waits(40)
    assert [death.exit_code for death in machine.deaths() if death.address and "24030" in death.address] == []


def test_the_log_of_a_process_that_ends_long_after_its_leadership_is_waited_for() -> None:
    """Its heap was full: it hung, lost its session, and Flink's error handler ended it half a minute later. The log is read after that."""
    machine = Machine()
    machine.vacates()
    machine.elects(JM_0)
    machine.sidecar.waits(40)
    machine.ends(JM_1, 239)
    machine.sidecar.waits(1)
    read = LogEnd("flink.log", "java.lang.OutOfMemoryError: Java heap space", pid=JM_1.runs.pid)
    machine.sidecar.observe(LogEndRead(machine.sidecar.moment, CLUSTER, read))
    machine.sidecar.waits(30)
    assert [(death.reason, death.exit_code) for death in machine.deaths()] == [("heap_exhausted", 239)]


def test_a_leader_that_took_over_and_died_in_recovery_is_said() -> None:
    """With how long after, its exit code and the error of its own log, in the failover in which that was."""
    machine = Machine()
    machine.ends(JM_1, 137)
    machine.vacates()
    machine.sidecar.sees(machine.flink.elect(JM_0, *_own())).waits(25)
    machine.ends(JM_0, 239, "Failed to create checkpoint storage at checkpoint coordinator side.")
    machine.vacates()
    machine.sidecar.waits(10)
    again = OnOneMachine("127.0.0.1", uuid4(), 9, 24040)
    machine.runs(again)
    machine.elects(again)
    machine.sidecar.waits(40)
    (episode, *_) = machine.sidecar.episodes()
    said = (
        "JobManager 127.0.0.1:24020 took over and ended 25 s later with exit code 239: "
        "Failed to create checkpoint storage at checkpoint coordinator side."
    )
    assert said in episode.facts
    assert any(said in delivery.body for delivery in machine.sidecar.sent)
    assert [death.exit_code for death in machine.deaths()][:1] == [137]


def test_a_process_that_was_stopped_did_not_end() -> None:
    """SIGSTOP for a minute: another one leads after its session has expired. It is said that it stands still."""
    machine = Machine()
    machine.sidecar.waits(10)
    machine.runs(JM_1, stopped=True)
    machine.sidecar.waits(32)
    machine.vacates()
    machine.elects(JM_0)
    machine.sidecar.waits(60)
    (episode,) = machine.sidecar.episodes()
    assert (episode.cause, episode.confidence) == (Cause.JOBMANAGER_LOST, Confidence.HIGH)
    assert "The leader's process has not ended: it is stopped (state T)." in episode.facts
    assert machine.deaths() == []
    assert all(delivery.death is None for delivery in machine.sidecar.sent)


def test_one_that_went_on_says_for_how_long_it_stood_still() -> None:
    """It steps down when it wakes, and is elected again."""
    machine = Machine()
    machine.runs(JM_1, stopped=True)
    machine.sidecar.waits(20)
    machine.runs(JM_1)
    machine.vacates()
    machine.elects(replace(JM_1, session_id=uuid4()))
    machine.sidecar.waits(60)
    (episode,) = machine.sidecar.episodes()
    assert episode.cause == Cause.SAME_PROCESS_REELECTION
    assert "The leader's process did not end: it was stopped (state T) for 20 s." in episode.facts
    assert machine.deaths() == []


def test_a_process_that_hangs_did_not_end() -> None:
    """It runs, and has lost its session: a full heap, or a network that is cut."""
    machine = Machine()
    machine.vacates()
    machine.elects(JM_0)
    machine.sidecar.waits(60)
    (episode,) = machine.sidecar.episodes()
    assert "The leader's process has not ended: it hung, or was cut off from the store." in episode.facts
    assert machine.deaths() == []


def test_of_one_that_may_have_been_started_again_at_its_port_nothing_is_said() -> None:
    """Nobody observed the end of the one before it."""
    machine = Machine()
    young = replace(JM_1.runs, pid=7, started_at=machine.sidecar.now - 30 * SECOND)
    now = machine.sidecar.moment
    machine.sidecar.observe(ProcessEnded(now, CLUSTER, ProcessEnd(JM_1.port, now.wall - 400 * SECOND)))
    machine.sidecar.observe(ProcessSeen(machine.sidecar.moment, CLUSTER, young))
    machine.vacates()
    machine.elects(JM_0)
    machine.sidecar.waits(60)
    (episode,) = machine.sidecar.episodes()
    assert not any("process" in fact for fact in episode.facts)
    assert machine.deaths() == []


def test_an_outage_that_flink_and_the_sidecar_saw_is_the_cause() -> None:
    """55 s without ZooKeeper: the JobManager ends itself, and another one leads 36 s after ZooKeeper is back."""
    machine = Machine()
    machine.sidecar.is_cut_off().waits(40)
    machine.ends(JM_1, 239)
    machine.sidecar.waits(15)
    machine.flink.vacate()
    machine.sidecar.connects().waits(36)
    machine.elects(JM_0)
    machine.sidecar.waits(60)
    (episode,) = machine.sidecar.episodes()
    assert (episode.cause, episode.confidence) == (Cause.STORE_OUTAGE, Confidence.HIGH)
    assert episode.facts[0].startswith(
        "ZooKeeper was out of reach of this observer too, from 2026-11-20 08:01:00 UTC for 55 s"
    )
    assert "with exit code 239: Flink's fatal error handler" in episode.facts[1]
    (death,) = machine.deaths()
    assert (death.reason, death.exit_code) == ("exited", 239)


def test_one_that_was_killed_while_the_store_was_away_was_killed() -> None:
    """A signal has a sender: the outage did not end it."""
    machine = Machine()
    machine.sidecar.is_cut_off().waits(5)
    machine.ends(JM_1, 137)
    machine.sidecar.waits(15)
    machine.flink.vacate().elect(JM_0)
    machine.sidecar.connects().waits(60)
    (episode,) = machine.sidecar.episodes()
    assert episode.cause != Cause.STORE_OUTAGE


def test_what_the_jvm_printed_of_its_heap_is_the_reason() -> None:
    """`ExitOnOutOfMemoryError`: exit code 3, and nothing in the log."""
    machine = Machine()
    now, process = machine.sidecar.moment, JM_1.runs
    printed = "java.lang.OutOfMemoryError: Java heap space"
    end = ProcessEnd(process.pid, now.wall, exit_code=3, exhausted=printed, ports=process.ports)
    machine.sidecar.observe(ProcessEnded(now, CLUSTER, end))
    machine.vacates()
    machine.elects(JM_0)
    machine.sidecar.waits(30)
    (death,) = machine.deaths()
    assert (death.reason, death.confidence, death.fault) == ("heap_exhausted", "high", printed)


def test_the_time_without_a_leader_begins_when_its_process_ended() -> None:
    """To the millisecond: no bounds of a session timeout."""
    machine = Machine()
    machine.ends(JM_1, 137)
    machine.sidecar.waits(22)
    machine.vacates()
    machine.sidecar.waits(0.5)
    machine.elects(JM_0)
    machine.sidecar.waits(30)
    (episode,) = machine.sidecar.episodes()
    assert episode.downtime_seconds_at_least == episode.downtime_seconds_at_most
    assert abs((episode.downtime_seconds_at_least or 0) - 22.5) < 0.1


def _own() -> list[ComponentId]:
    return [ComponentId(component) for component in Component if component is not Component.JOB]
