"""Planned actions that need no pods: what people do to a cluster, or to the sidecar, on a good day."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tests.night.scenario import NO_LOSS, ONE_LEFT, Scenario

if TYPE_CHECKING:
    from tests.night.night import Night

_GONE: Final = frozenset({"jobmanager_lost"})


def _nothing(night: "Night") -> None:
    time.sleep(30)


def _task_manager_restarts(night: "Night") -> None:
    night.lab.taskmanager.kill()
    night.lab.taskmanager.start()


def _standby_restarts(night: "Night") -> None:
    standby = night.standby()
    night.terminate(standby)
    standby.start()


def _one_more_contends(night: "Night") -> None:
    night.add_jobmanager()


def _the_last_one_leaves(night: "Night") -> None:
    night.terminate(night.standby())


def _job_ends(night: "Night") -> None:
    night.lab.cancel_job(night.jobs.pop())


def _job_begins(night: "Night") -> None:
    night.lab.cancel_job(night.jobs.pop())
    night.jobs.append(night.lab.submit_job())


def _job_is_cancelled_before_a_kill(night: "Night") -> None:
    """Nobody misses what somebody has ended: nothing of it may be red but the loss of the leader itself."""
    night.lab.cancel_job(night.jobs.pop())
    time.sleep(13)
    night.terminate(night.leader())


def _sidecar_restarts(night: "Night") -> None:
    night.sidecar.stop()
    night.sidecar.start().wait_ready()


def _sidecar_reloads(night: "Night") -> None:
    night.reload()


def _store_restarts(night: "Night") -> None:
    night.store_down()
    night.store_up()


def _drill(night: "Night") -> None:
    night.drill("start", "--window", "5m", "--comment", "night", "--author", "ann")
    time.sleep(20)  # a failover counts as the drill's only if it certainly began after it was read
    night.kill(night.leader())
    night.until_all_run()
    time.sleep(10)
    night.drill("stop")


def _silenced_kill(night: "Night") -> None:
    night.silence("2m")
    time.sleep(8)  # until it is read
    night.kill(night.leader())


PLANNED: Final[Mapping[str, Scenario]] = {
    "nothing happens": Scenario(_nothing, planned=True, said=False, through=frozenset({"OK"})),
    "a TaskManager restarts": Scenario(
        _task_manager_restarts, planned=True, said=None, through=NO_LOSS | {"NOT_RUNNING"}
    ),
    "the standby restarts": Scenario(_standby_restarts, planned=True, said=False, through=NO_LOSS),
    "one more JobManager contends": Scenario(_one_more_contends, planned=True, said=False, through=NO_LOSS),
    "the last standby leaves": Scenario(_the_last_one_leaves, planned=True, said=None, final=ONE_LEFT, through=NO_LOSS),
    "a job is cancelled": Scenario(_job_ends, planned=True, said=False, through=NO_LOSS),
    "a job is cancelled, and another one submitted": Scenario(_job_begins, planned=True, said=False, through=NO_LOSS),
    "a job is cancelled, then the leader is stopped in order": Scenario(
        _job_is_cancelled_before_a_kill, frozenset({"graceful_handover"}), planned=True, said=None, final=ONE_LEFT
    ),
    "the sidecar restarts": Scenario(
        _sidecar_restarts, planned=True, said=False, through=NO_LOSS | {"BLIND", "UNCHECKED"}
    ),
    "the sidecar reloads its configuration": Scenario(_sidecar_reloads, planned=True, said=False, through=NO_LOSS),
    "the store restarts": Scenario(
        _store_restarts,
        frozenset({"store_outage", "store_reelection", "same_process_reelection", "lease_renewal_failed"}),
        planned=True,
        said=None,
        through=NO_LOSS | {"BLIND", "UNCHECKED", "SILENT", "DOWN"},
    ),
    "a drill": Scenario(_drill, _GONE, planned=True, said=None, final=ONE_LEFT),
    "the leader is killed under a silence": Scenario(_silenced_kill, _GONE, planned=True, said=False, final=ONE_LEFT),
}
