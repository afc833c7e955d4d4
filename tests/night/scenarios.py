"""What is done to a real Flink in a night, and what a true answer may say of it. One row a scenario."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sidecar.lab import rest
from sidecar.lab.rest import RestError
from tests.kit.job_programs import program_jar

if TYPE_CHECKING:
    from tests.night.night import Night

_GONE: Final = frozenset({"jobmanager_lost"})
_STEPPED_DOWN: Final = frozenset({"clean_shutdown"})
_ANY_OUTAGE: Final = frozenset({"store_outage"})
_KILLED: Final = frozenset({"killed"})
_STOPPED: Final = frozenset({"stopped"})


class Scenario(Struct, frozen=True):
    """One row. `act` returns once what it does is done; the judge waits for the end that `final` names."""

    act: "Callable[[Night], None]"
    causes: frozenset[str] = frozenset()
    """True causes of its failover. Empty: no leader changes."""
    deaths: frozenset[str] = frozenset()
    """True reasons of the death of the JobManager that led before. Empty: it lives, or none led."""
    final: frozenset[str] = frozenset({"OK"})
    """The true status at its end."""
    planned: bool = False
    """Nothing is lost: no message may be red."""
    silent: bool = False
    """No message at all is expected."""


# -- failures ----------------------------------------------------------------------------------------------------------


def _kill_leader(night: "Night") -> None:
    night.leader().kill()


def _stop_in_order(night: "Night") -> None:
    leader = night.leader()
    leader.terminate()
    leader.wait(60)


def _stand_still(seconds: float) -> "Callable[[Night], None]":
    def act(night: "Night") -> None:
        leader = night.leader()
        leader.pause()
        time.sleep(seconds)
        leader.resume()

    return act


def _standby_dies(night: "Night") -> None:
    night.standby().kill()


def _only_one_is_killed(night: "Night") -> None:
    night.standby().kill()
    night.leader().kill()
    time.sleep(40)
    night.start_all()


def _all_die(night: "Night") -> None:
    for jobmanager in night.lab.jobmanagers:
        jobmanager.kill()
    time.sleep(20)
    night.start_all()


def _machine_dies(night: "Night") -> None:
    night.lab.taskmanager.kill()
    _all_die(night)


def _next_one_dies_too(night: "Night") -> None:
    leader = night.leader()
    leader.kill()
    night.until("another leader", lambda: night.lab.leading() not in {leader, None})
    night.leader().kill()
    night.start_all()


def _during_recovery(night: "Night") -> None:
    """The leader dies while no TaskManager is registered."""
    night.lab.taskmanager.kill()
    night.leader().kill()
    time.sleep(30)
    night.lab.taskmanager.start()


def _task_manager_dies_too(night: "Night") -> None:
    night.lab.taskmanager.kill()
    night.leader().kill()
    time.sleep(100)
    night.lab.taskmanager.start()


def _store_away(seconds: float) -> "Callable[[Night], None]":
    def act(night: "Night") -> None:
        night.store_down()
        time.sleep(seconds)
        night.store_up()
        night.start_all()

    return act


def _store_stands_still(night: "Night") -> None:
    night.store_pause()
    time.sleep(15)
    night.store_resume()
    night.start_all()


def _store_away_and_leader_killed(night: "Night") -> None:
    night.store_down()
    time.sleep(3)
    night.any_leader.kill()
    time.sleep(10)
    night.store_up()
    night.start_all()


def _out_of_heap(night: "Night") -> None:
    leader = night.leader()
    jar = rest.upload_jar(leader.rest_address, program_jar("HeapFiller", night.folder))
    with suppress(RestError):  # no answer: it is ending
        rest.call(leader.rest_address, "POST", f"/jars/{jar}/run", b"{}")
    leader.wait(240)


def _program_exits(night: "Night") -> None:
    leader = night.leader()
    jar = rest.upload_jar(leader.rest_address, program_jar("Exit", night.folder))
    with suppress(RestError):
        rest.call(leader.rest_address, "POST", f"/jars/{jar}/run", b"{}")
    leader.wait(60)


def _checkpoints_vanish(night: "Night") -> None:
    leader = night.leader()
    stored = night.store.checkpoints(night.jobs[0])
    leader.kill()
    for number in stored:
        with suppress(Exception):  # one that Flink has just removed itself
            night.store.remove_checkpoint(night.jobs[0], number)


def _plan_vanishes(night: "Night") -> None:
    night.leader().kill()
    time.sleep(night.store.plan_seconds)
    night.store.take_plan(night.jobs[0])


def _sidecar_dies_with_the_leader(night: "Night") -> None:
    night.sidecar.kill()
    night.leader().kill()
    time.sleep(25)
    night.sidecar.start()
    night.sidecar.wait_ready()


def _sidecar_dies_after_the_leader(night: "Night") -> None:
    night.leader().kill()
    time.sleep(1)
    night.sidecar.kill()
    time.sleep(10)
    night.sidecar.start()
    night.sidecar.wait_ready()


# -- planned actions ---------------------------------------------------------------------------------------------------


def _nothing(night: "Night") -> None:
    time.sleep(30)


def _task_manager_restarts(night: "Night") -> None:
    night.lab.taskmanager.kill()
    night.lab.taskmanager.start()


def _standby_restarts(night: "Night") -> None:
    standby = night.standby()
    standby.terminate()
    standby.wait(60)
    standby.start()


def _one_more_contends(night: "Night") -> None:
    night.lab.add_jobmanager()


def _the_last_one_leaves(night: "Night") -> None:
    standbys = [one for one in night.lab.jobmanagers if one.running and one is not night.leader()]
    standbys[-1].terminate()
    standbys[-1].wait(60)


def _job_ends(night: "Night") -> None:
    night.lab.cancel_job(night.jobs.pop())


def _job_begins(night: "Night") -> None:
    night.jobs.append(night.lab.submit_job())


def _sidecar_restarts(night: "Night") -> None:
    night.sidecar.stop()
    night.sidecar.start()
    night.sidecar.wait_ready()


def _sidecar_reloads(night: "Night") -> None:
    night.reload()


def _store_restarts(night: "Night") -> None:
    night.store_down()
    night.store_up()


def _drill(night: "Night") -> None:
    night.drill("start", "--window", "5m", "--comment", "night", "--author", "ann")
    night.leader().kill()
    night.until_all_run()
    night.drill("stop")


def _silenced_kill(night: "Night") -> None:
    night.silence("2m")
    night.leader().kill()


FAILURES: Final[Mapping[str, Scenario]] = {
    "the leader is killed": Scenario(_kill_leader, _GONE, _KILLED),
    "the leader is stopped in order": Scenario(_stop_in_order, _STEPPED_DOWN, _STOPPED),
    "the leader stands still for 4 s": Scenario(_stand_still(4), silent=True),
    "the leader stands still for 40 s": Scenario(_stand_still(40), _GONE),
    "the standby is killed": Scenario(_standby_dies, final=frozenset({"DEGRADED", "OK"})),
    "the only JobManager is killed, and started after 40 s": Scenario(_only_one_is_killed, _GONE, _KILLED),
    "all JobManagers are killed, and started after 20 s": Scenario(_all_die, _GONE, _KILLED),
    "everything is killed with its machine": Scenario(_machine_dies, _GONE, _KILLED),
    "the next leader is killed as soon as it leads": Scenario(_next_one_dies_too, _GONE, _KILLED),
    "leader and TaskManager are killed, which comes back after 30 s": Scenario(_during_recovery, _GONE, _KILLED),
    "leader and TaskManager are killed, which comes back after 100 s": Scenario(_task_manager_dies_too, _GONE, _KILLED),
    "the store is away for 2 s": Scenario(_store_away(2), _ANY_OUTAGE | _GONE),
    "the store is away for 25 s": Scenario(_store_away(25), _ANY_OUTAGE, frozenset({"exited"})),
    "the store is away for 55 s": Scenario(_store_away(55), _ANY_OUTAGE, frozenset({"exited"})),
    "the store stands still for 15 s": Scenario(_store_stands_still, _ANY_OUTAGE, frozenset({"exited"})),
    "the store is away, and the leader is killed meanwhile": Scenario(
        _store_away_and_leader_killed, _ANY_OUTAGE | _GONE, _KILLED
    ),
    "the heap is full": Scenario(_out_of_heap, _GONE, frozenset({"heap_exhausted"})),
    "a program ends the JobManager": Scenario(_program_exits, _GONE | _STEPPED_DOWN, frozenset({"exited"})),
    "a job's checkpoints vanish from the store": Scenario(_checkpoints_vanish, _GONE, _KILLED, frozenset({"LOST"})),
    "a job's plan vanishes from the store": Scenario(_plan_vanishes, _GONE, _KILLED, frozenset({"LOST"})),
    "the sidecar is killed with the leader": Scenario(_sidecar_dies_with_the_leader, _GONE, _KILLED),
    "the sidecar is killed after the leader": Scenario(_sidecar_dies_after_the_leader, _GONE, _KILLED),
}
"""Real failures, in an order in which each can follow the one before it."""

PLANNED: Final[Mapping[str, Scenario]] = {
    "nothing happens": Scenario(_nothing, planned=True, silent=True),
    "a TaskManager restarts": Scenario(_task_manager_restarts, planned=True),
    "the standby restarts": Scenario(_standby_restarts, planned=True, silent=True),
    "one more JobManager contends": Scenario(_one_more_contends, planned=True, silent=True),
    "the last JobManager leaves": Scenario(_the_last_one_leaves, planned=True, silent=True),
    "a job is cancelled": Scenario(_job_ends, planned=True, silent=True),
    "a job is submitted": Scenario(_job_begins, planned=True, silent=True),
    "the sidecar restarts": Scenario(_sidecar_restarts, planned=True, silent=True),
    "the sidecar reloads its configuration": Scenario(_sidecar_reloads, planned=True, silent=True),
    "the store restarts": Scenario(_store_restarts, _ANY_OUTAGE | _GONE, planned=True),
    "a drill": Scenario(_drill, _GONE, _KILLED, planned=True),
    "the leader is killed under a silence": Scenario(_silenced_kill, _GONE, _KILLED, planned=True, silent=True),
}
"""Planned actions that need no pods. Those of Deployments, StatefulSets and Jobs are tests/pods."""

SCENARIOS: Final[Mapping[str, Scenario]] = {**FAILURES, **PLANNED}
