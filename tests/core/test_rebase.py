"""Times of another process's clock: none is forgotten, and no other number is changed."""

import typing

import pytest
from msgspec import Struct

from sidecar.core.alerting.alerts import Alert, Alerts, CountedFailover, Failovers, Group, Member, Pending
from sidecar.core.alerting.suppression import Silence, Silences
from sidecar.core.captures import Gathered
from sidecar.core.cluster.cluster_state import ComponentState, Confirmed, Drilled, Fewer, RestServer, Unanswered
from sidecar.core.drills.drill import RunningDrill
from sidecar.core.drills.findings import Findings
from sidecar.core.failover.causes import Facts
from sidecar.core.failover.death_verdict import DeathVerdict
from sidecar.core.failover.ends import (
    ContainerEnded,
    Ends,
    KnownPod,
    KnownProcessEnd,
    LogFault,
    LogRead,
    OperatorEvent,
    PodSign,
    Rebooted,
    Restart,
)
from sidecar.core.failover.episodes import Absence, Episode
from sidecar.core.failover.plans import Disruption, Intent, Operated
from sidecar.core.failover.recovery_state import Assessed, JobFault
from sidecar.core.flink.configmaps import LeaderElectionRecord
from sidecar.core.flink.deployments import FlinkDeployment
from sidecar.core.flink.leadership import Births, ConfigMapPosition, Held, LeaderInformation, ZNodePosition
from sidecar.core.leadership.leadership_account import Account, Change, Lasted, Standby
from sidecar.core.leadership.leases import Lease
from sidecar.core.leadership.transitions import Contest
from sidecar.core.leadership.unobserved import Downtime, Elections, Gap, LastLed, Look, Loss
from sidecar.core.moment import Moment
from sidecar.core.pictures import Checkpoint, Checkpoints, Job, Picture, Restored
from sidecar.core.process_end import PodStatus, ProcessEnd
from sidecar.core.rebase import rebased, steady_fields

HANDED_OVER: tuple[type[Struct], ...] = (
    *(ComponentState, Look, Elections, Gap, Births, Contest, Absence, LastLed, Downtime, Standby, Lease),
    *(Operated, FlinkDeployment, Disruption, Intent, Drilled),
    *(Ends, KnownPod, PodStatus, ContainerEnded, LogFault, PodSign, OperatorEvent, Restart),
    *(KnownProcessEnd, ProcessEnd, LogRead, Rebooted, DeathVerdict),
    *(Picture, Job, Checkpoints, Checkpoint, Restored, JobFault, Assessed),
    *(RestServer, Unanswered),
    *(Episode, Facts, Loss, Gathered, LeaderInformation, Held, ZNodePosition, ConfigMapPosition, LeaderElectionRecord),
    *(Alerts, Group, Member, Alert, Failovers, CountedFailover, Moment),
)
READ_BY_COMMANDS: tuple[type[Struct], ...] = (
    *(Account, Change, Lasted),
    Pending,
    Silence,
    Silences,
    Confirmed,
    Fewer,
    RunningDrill,
    Findings,
)
"""`status` and `alerts` read the journal of another process."""
OTHER_NUMBERS = {
    Standby: {"lacked", "left"},
    Moment: {"wall"},
    Absence: {"vacant", "leaders"},
    Downtime: {"at_least", "at_most"},
    Episode: {
        "jobs_total",
        "away",
        "failovers",
        "jobs_away",
        "jobs_ended",
        "jobs_lost",
        "jobs_vanished",
        "longest_ended",
    },
    Facts: {"left", "withdrawn", "not_renewed_for", "contended", "contend", "exit_code", "stood_still"},
    Look: {"czxid", "version"},
    Elections: {"count"},
    Gap: {"exact", "at_least"},
    Births: {"parent_czxid", "count"},
    ZNodePosition: {"czxid", "mzxid", "version", "ephemeral_owner", "mtime"},
    LeaderElectionRecord: {"lease_duration", "leader_transitions"},
    Gathered: {"jobs_total", "files", "round"},
    Alert: {"count", "jobs_lost"},
    Group: {"worst"},
    CountedFailover: {"times"},
    Lease: {"quiet_for", "renewed_every"},
    FlinkDeployment: {"generation", "observed_generation", "reconciled_at"},
    Intent: {"after"},
    Restart: {"after"},
    PodStatus: {"delete_at", "grace_seconds", "created_at", "limit_bytes"},
    LogFault: {"age"},
    ContainerEnded: {"exit_code", "limit_bytes", "seen_at"},
    LogRead: {"pid"},
    ProcessEnd: {"pid", "ended_at", "exit_code", "oom_kills", "limit_bytes", "ports"},
    DeathVerdict: {"exit_code", "limit_bytes", "ended_at", "seen_at"},
    Picture: {"at", "jobs_beyond", "task_managers_beyond", "slots_total", "slots_free"},
    Job: {"started_at", "changed_at", "running_tasks", "total_tasks", "restarts"},
    Checkpoints: {"read_at", "first_id", "interval", "shortest"},
    Checkpoint: {"id", "triggered_at", "ended_at", "size"},
    Restored: {"id"},
    Silence: {"starts_at", "ends_at", "expired_at", "hid"},
    Fewer: {"contended"},
    Unanswered: {"requests"},
    Drilled: {"since", "passed_at"},
    Findings: {"jobs_total", "hidden_total"},
    Lasted: {"led", "vacant", "suspended", "unobserved"},
}
OF_LEASES = {"changed_at", "seen_at", "renewed_at"}
"""Steady, and not handed over: of a lease that has expired the record alone is."""


def has_numbers(hint: object) -> bool:
    """Whether a value of this type is a number, or a tuple of them."""
    return hint is int or any(argument is int for argument in typing.get_args(hint))


@pytest.mark.parametrize("kind", [*HANDED_OVER, *READ_BY_COMMANDS])
def test_each_number_is_a_steady_time_or_something_else(kind: type[Struct]) -> None:
    """A field that is new belongs to one of the two."""
    numbers = {name for name, hint in typing.get_type_hints(kind).items() if has_numbers(hint)}
    numbers -= {*Alerts.__struct_fields__} if kind is Alerts else set()
    of_leases = OF_LEASES if kind is Lease else set()
    assert numbers == steady_fields(kind) | OTHER_NUMBERS.get(kind, set()) | of_leases


def test_steady_times_move_and_wall_times_stay() -> None:
    """However deep they are."""
    alert = Alert("1", "X", "default", {}, Moment(10, 1000))
    group = Group("", {}, {"1": Member(alert)}, flush_at=20)
    [moved] = rebased({"g": group}, 5).values()
    assert (moved.flush_at, moved.notified_at) == (25, None)
    assert moved.members["1"].alert.began == Moment(15, 1000)
    assert rebased(Contest((), (1, 2)), 5) == Contest((), (6, 7))


def test_what_has_no_time_is_the_same_object() -> None:
    """Nothing is written again for it."""
    gap = Gap(1, 2)
    assert rebased(gap, 5) is gap
