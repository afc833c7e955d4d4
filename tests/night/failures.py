"""Real failures: what is done to a real Flink in a night, in an order in which each can follow the one before it."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.core.failover.causes import RELATED
from sidecar.core.moment import SECOND
from tests.kit.job_programs import program_jar
from tests.kit.recovery_scene import PICTURE_SECONDS
from tests.lab import rest
from tests.lab.managers import JobManager
from tests.lab.rest import RestError
from tests.night.scenario import FAILOVER, KUBERNETES, LOST, NO_LOSS, ONE_LEFT, ZOOKEEPER, Act, Scenario

if TYPE_CHECKING:
    from tests.night.night import Night

_GONE: Final = frozenset({"jobmanager_lost", "restarted_in_place"})
_HANDED_OVER: Final = frozenset({"graceful_handover"})
_BACK: Final = frozenset({"jobmanager_lost", "same_process_reelection", "lease_renewal_failed"})
_ITSELF: Final = frozenset({"same_process_reelection", "lease_renewal_failed"})
_OUTAGE: Final = frozenset({"store_outage", "store_reelection"})
_SELF: Final = frozenset({"exited"})
_BLIND: Final = FAILOVER | {"BLIND", "UNCHECKED"}
_UNSEEN: Final = NO_LOSS | {"BLIND", "UNCHECKED"}
_JOBS_LOST: Final = FAILOVER | {"LOST"}
_BY_HAND: Final = frozenset({"tampered", "rewritten_by_flink"})
_ANY: Final = frozenset({"recovered", "degraded", "lost"})
_DEGRADED: Final = frozenset({"recovered", "degraded"})


def _kill_leader(night: "Night") -> None:
    night.kill(night.leader())


def _stop_in_order(night: "Night") -> None:
    night.terminate(night.leader())


def _stand_still(seconds: float) -> Act:
    def act(night: "Night") -> None:
        leader = night.leader()
        leader.pause()
        time.sleep(seconds)
        leader.resume()

    return act


def _cut_off(seconds: float) -> Act:
    return lambda night: night.cut_off(night.lab.wires[night.leader().name], seconds)


def _only_one_is_cut_off(night: "Night") -> None:
    night.kill(night.standby())
    _cut_off(20)(night)
    night.start_all()


def _blinded(seconds: float) -> Act:
    """The sidecar alone: until all is said that may be said of it."""

    def act(night: "Night") -> None:
        night.cut_off(night.wire, seconds)
        time.sleep(RELATED / SECOND + 15)

    return act


def _standby_dies(night: "Night") -> None:
    night.kill(night.standby())


def _only_one_is_killed(night: "Night") -> None:
    night.kill(night.standby(), night.leader())
    time.sleep(40)
    night.start_all()


def _all_die(night: "Night") -> None:
    night.kill(*night.lab.jobmanagers)
    time.sleep(20)
    night.start_all()


def _machine_dies(night: "Night") -> None:
    night.lab.taskmanager.kill()
    _all_die(night)


def _another(night: "Night", leader: JobManager) -> None:
    """Wait until another one leads."""
    night.until("another leader", lambda: night.lab.leading() not in {leader, None})


def _next_one_dies_too(night: "Night") -> None:
    leader = night.leader()
    night.kill(leader)
    _another(night, leader)
    night.kill(night.leader())
    night.start_all()


def _in_a_row(times: int, act: Act) -> Act:
    """One after the other, each when the jobs run again."""

    def acts(night: "Night") -> None:
        for _ in range(times):
            leader = night.leader()
            act(night)
            _another(night, leader)
            night.until_all_run()
            night.start_all()

    return acts


def _without_workers(seconds: float) -> Act:
    """The leader dies, and for so long no TaskManager is there."""

    def act(night: "Night") -> None:
        night.lab.taskmanager.kill()
        night.kill(night.leader())
        time.sleep(seconds)
        night.start_all()

    return act


def _workers_die(night: "Night") -> None:
    night.lab.taskmanager.kill()
    time.sleep(60)
    night.lab.taskmanager.start()


def _store_away(seconds: float) -> Act:
    def act(night: "Night") -> None:
        night.store_down()
        time.sleep(seconds)
        night.store_up()
        night.supervise()

    return act


def _store_stands_still(night: "Night") -> None:
    night.store_pause()
    time.sleep(15)
    night.store_resume()
    night.supervise()


def _store_away_and_leader_killed(night: "Night") -> None:
    leader = night.leader()
    night.store_down()
    time.sleep(3)
    night.kill(leader)
    time.sleep(10)
    night.store_up()
    night.supervise()


def _killed_and_then_the_store_away(night: "Night") -> None:
    """In the middle of its recovery."""
    leader = night.leader()
    night.kill(leader)
    _another(night, leader)
    _store_away(25)(night)


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
    night.kill(night.leader())
    for number in night.store.checkpoints(night.jobs[0]):
        with suppress(Exception):  # one that Flink has just removed itself
            night.store.remove_checkpoint(night.jobs[0], number)


def _newest_checkpoints_vanish(night: "Night") -> None:
    """Of ten: those that are left are older than the last picture."""
    job = night.jobs[0]
    night.until("many checkpoints", lambda: len(night.store.checkpoints(job)) > 8)
    night.kill(night.leader())
    for number in night.store.checkpoints(job)[2:]:
        night.store.remove_checkpoint(job, number)


def _plan_vanishes(night: "Night") -> None:
    night.kill(night.leader())
    time.sleep(night.store.plan_seconds)
    night.store.take_plan(night.jobs[0])


def _leaders_deleted(night: "Night") -> None:
    """By hand, and the JobManagers live."""
    night.store.delete_leaders()


def _sidecar_dies_with_the_leader(night: "Night") -> None:
    night.sidecar.kill()
    night.kill(night.leader())
    time.sleep(25)
    night.sidecar.start().wait_ready()


def _sidecar_restarts_before(night: "Night") -> None:
    """It goes on from the handover of the one before it."""
    night.sidecar.stop()
    night.sidecar.start().wait_ready()
    time.sleep(PICTURE_SECONDS)
    night.kill(night.leader())


def _sidecar_dies_after_the_leader(night: "Night") -> None:
    night.kill(night.leader())
    time.sleep(1)
    night.sidecar.kill()
    time.sleep(10)
    night.sidecar.start().wait_ready()


FAILURES: Final[Mapping[str, Scenario]] = {
    "the leader is killed": Scenario(_kill_leader, _GONE, final=ONE_LEFT),
    "the leader is stopped in order": Scenario(_stop_in_order, _HANDED_OVER, final=ONE_LEFT),
    "the leader stands still for 4 s": Scenario(_stand_still(4), said=False),
    "the leader stands still for 20 s": Scenario(_stand_still(20), _BACK),
    "the leader stands still for 60 s": Scenario(_stand_still(60), _BACK),
    "the leader is cut off from the store for 2 s": Scenario(_cut_off(2), _BACK, said=None, cuts=True),
    "the leader is cut off from the store for 20 s": Scenario(_cut_off(20), _BACK, _SELF, final=ONE_LEFT, cuts=True),
    "the only JobManager is cut off from the store for 20 s": Scenario(
        _only_one_is_cut_off, _ITSELF, _SELF, said=None, cuts=True
    ),
    "the sidecar is cut off from the store for 2 s": Scenario(_blinded(2), said=False, through=_UNSEEN, cuts=True),
    "the sidecar is cut off from the store for 20 s": Scenario(_blinded(20), said=False, through=_UNSEEN, cuts=True),
    "the standby is killed": Scenario(_standby_dies, final=ONE_LEFT, said=None),
    "the only JobManager is killed, and started after 40 s": Scenario(_only_one_is_killed, _GONE),
    "all JobManagers are killed, and started after 20 s": Scenario(_all_die, _GONE),
    "everything is killed with its machine": Scenario(_machine_dies, _GONE),
    "the next leader is killed as soon as it leads": Scenario(_next_one_dies_too, _GONE),
    "three leaders are killed, one after the other": Scenario(_in_a_row(3, _kill_leader), _GONE),
    "ten leaders are killed, one after the other": Scenario(_in_a_row(10, _kill_leader), _GONE),
    "ten leaders are stopped in order, one after the other": Scenario(_in_a_row(10, _stop_in_order), _HANDED_OVER),
    "five leaders stand still for 20 s, one after the other": Scenario(_in_a_row(5, _stand_still(20)), _BACK),
    "leader and TaskManager are killed, which comes back after 30 s": Scenario(_without_workers(30), _GONE),
    "leader and TaskManager are killed, which comes back after 100 s": Scenario(
        _without_workers(100), _GONE, recovery=_DEGRADED | {"unproven"}
    ),
    "the TaskManager is killed, and comes back after 60 s": Scenario(_workers_die, said=None),
    "the store is away for 2 s": Scenario(_store_away(2), _OUTAGE | _BACK, _SELF, through=_BLIND, said=None),
    "the store is away for 25 s": Scenario(_store_away(25), _OUTAGE, _SELF, through=_BLIND),
    "the store is away for 55 s": Scenario(_store_away(55), _OUTAGE, _SELF, through=_BLIND),
    "the store stands still for 15 s": Scenario(_store_stands_still, _OUTAGE | _BACK, _SELF, through=_BLIND, said=None),
    "the store is away, and the leader is killed meanwhile": Scenario(
        _store_away_and_leader_killed, _OUTAGE | _GONE, _SELF, through=_BLIND
    ),
    "the leader is killed, and the store is away during the recovery": Scenario(
        _killed_and_then_the_store_away, _OUTAGE | _GONE, _SELF, through=_BLIND
    ),
    "the heap is full": Scenario(_out_of_heap, _GONE | _HANDED_OVER, frozenset({"heap_exhausted"}), final=ONE_LEFT),
    "a program ends the JobManager": Scenario(_program_exits, _GONE | _HANDED_OVER, _SELF, final=ONE_LEFT),
    "a job's newest checkpoints vanish from the store": Scenario(
        _newest_checkpoints_vanish, _GONE, final=frozenset({"DEGRADED"}), recovery=frozenset({"degraded"})
    ),
    "the sidecar restarts, and then the leader is killed": Scenario(
        _sidecar_restarts_before, _GONE, final=ONE_LEFT, through=_BLIND
    ),
    "the sidecar is killed with the leader": Scenario(
        _sidecar_dies_with_the_leader, _GONE, final=ONE_LEFT, through=_BLIND, unobserved=True
    ),
    "the sidecar is killed after the leader": Scenario(
        _sidecar_dies_after_the_leader, _GONE, final=ONE_LEFT, through=_BLIND, unobserved=True
    ),
    "the leaders' ConfigMap is deleted by hand": Scenario(
        _leaders_deleted, _BY_HAND, _SELF, ONE_LEFT | LOST, _JOBS_LOST | {"BLIND"}, _ANY, stores=KUBERNETES
    ),
    "the leaders' znodes are deleted by hand": Scenario(
        _leaders_deleted, _BY_HAND, _SELF, through=_JOBS_LOST, said=None, stores=ZOOKEEPER
    ),
    "a job's checkpoints vanish from the store": Scenario(
        _checkpoints_vanish, _GONE, final=LOST, through=_JOBS_LOST, recovery=frozenset({"lost"}), lost=1
    ),
    "a job's plan vanishes from the store": Scenario(
        _plan_vanishes, _GONE, final=LOST, through=_JOBS_LOST, recovery=frozenset({"lost"}), lost=1
    ),
}
