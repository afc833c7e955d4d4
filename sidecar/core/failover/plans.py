"""Whether a failover was planned, and whether a leader is wanted at all: what somebody meant to do, and how close in time that was to the
loss of the leader.

Whatever makes the JobManagers is read as a FlinkDeployment: scaled to 0 is suspended, rolled out is upgraded.

In an upgrade the operator ends the JobManagers first and writes UPGRADING then. So the facts of one upgrade arrive in this order: a
generation that the operator has not processed (`changed_at`), the loss of the leader, UPGRADING (`began`), DEPLOYED (`ended`), the next
leader. A failover is planned only if UPGRADING was near it. A generation alone lets a page wait until then, at most AFTER.
See docs/project/adr/0027-planned-failovers.md.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.flink.deployments import FlinkDeployment, Maker, Reconciliation, Seen
from sidecar.core.moment import SECOND, Moment, lag, moment_of, spoken
from sidecar.core.pods import Address, KubernetesName, is_address, is_pod_at
from sidecar.core.sanitize import clean

BEFORE: Final = 600 * SECOND
"""How long before the loss of a leader a plan may have begun: a savepoint is taken first, and a pod has a grace period."""
AFTER: Final = 120 * SECOND
"""How long after the loss an upgrade may be observed: the operator waits for the end of the JobManagers, then says what it does."""
LATE: Final = 10 * SECOND
"""The delay with which a plan may be observed, since leaders and plans are watched independently. A later one answers the loss."""
UNREAD: Final = 600 * SECOND
"""How long a suspension counts after the FlinkDeployment can no longer be read."""
MOST_DISRUPTIONS: Final = 16
"""Remembered per cluster, the latest ones."""


_UNNAMED: Final[Mapping[str, str]] = {
    Maker.FLINK: "Flink ended and deleted its ConfigMap",
    Maker.NOTHING: "nothing is deployed that makes its JobManagers",
}
"""The phrases for a cluster without a maker of its own."""


class Plan(StrEnum):
    """What somebody meant to do with a leader."""

    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    SUSPENSION = "suspension"
    DELETION = "deletion"
    DRAIN = "drain"


class Intent(Struct, frozen=True):
    """A fact that says that a leader was lost on purpose."""

    plan: Plan
    after: int
    """How long after the loss it was observed; negative: before."""
    of: str | None = None
    """A node, a pod, or the FlinkBlueGreenDeployment."""
    subject: str = ""
    """The maker of the JobManagers: `Deployment flink-jobmanager`. Empty: a FlinkDeployment."""
    evicted: bool = True
    """Of a drain. False: the pod was deleted, and its node is cordoned."""

    def __str__(self) -> str:
        observed = f"observed {lag(self.after)}"
        colour = f" It is one colour of FlinkBlueGreenDeployment {clean(self.of)}." if self.of else ""
        subject = clean(self.subject) or "The FlinkDeployment"
        match self.plan:
            case Plan.UPGRADE if self.subject:
                return f"{subject} was being rolled out: {observed}."
            case Plan.UPGRADE:
                return f"The operator was upgrading the FlinkDeployment: {observed}.{colour}"
            case Plan.ROLLBACK:
                return f"The operator was rolling the FlinkDeployment back to its last stable spec: {observed}.{colour}"
            case Plan.SUSPENSION:
                is_job = self.subject.startswith(f"{Maker.JOB} ")
                how = "suspended, or had finished" if is_job else "scaled to 0" if self.subject else "suspended"
                return f"{subject} was {how}: {observed}.{colour}"
            case Plan.DELETION:
                what = _UNNAMED.get(self.subject, f"{subject} was deleted")
                return f"{what[0].upper()}{what[1:]}: {observed}.{colour}"
        node = clean(self.of or "its node")
        how = f"evicted from {node}" if self.evicted else f"deleted from {node}, which is cordoned"
        return f"The leader's pod was {how}: {observed}."


class Disruption(Struct, frozen=True):
    """A JobManager's pod that is being evicted, or deleted from a cordoned node."""

    at: Moment
    """When the disruption was observed."""
    pod: KubernetesName
    address: Address
    """The IP address of the pod. Empty: not known."""
    node: KubernetesName | None = None
    evicted: bool = True


class Operated(Struct, frozen=True):
    """The state of the cluster's FlinkDeployment, or of another maker of its JobManagers."""

    deployment: FlinkDeployment | None
    """None: it was deleted."""
    unread_since: Moment | None = None
    """Since when it cannot be read; None: it can."""
    changed_at: Moment | None = None
    """When its spec changed, if the operator has not processed that change."""
    plan: Plan | None = None
    """What the operator did last: UPGRADE or ROLLBACK."""
    asked_at: Moment | None = None
    """When the spec changed that `plan` deploys; None: it was not observed to change."""
    began: Moment | None = None
    """When `plan` was observed first."""
    ended: Moment | None = None
    """None: it goes on."""
    unwanted_since: Moment | None = None
    """Since when it is suspended or deleted; None: its cluster is wanted."""
    wanted_since: Moment | None = None
    """When it was wanted again."""
    kind: Maker = Maker.FLINK_DEPLOYMENT
    name: str = ""
    """The name of a maker of another kind than FlinkDeployment; also after it was deleted."""
    unseen: bool = False
    """Whether it was already unwanted when it was first read: the change was not observed."""
    namespace: str = ""
    """The namespace of the maker, if both were deleted together."""

    @property
    def subject(self) -> str:
        """`Deployment flink-jobmanager`; empty: a FlinkDeployment, whose name is the cluster's id."""
        return "" if self.kind is Maker.FLINK_DEPLOYMENT else f"{self.kind} {self.name}".rstrip()

    @property
    def is_read(self) -> bool:
        """Whether it exists and can be read."""
        return self.deployment is not None and self.unread_since is None


# -- what is observed --------------------------------------------------------------------------------------------------


def observed(
    operated: Operated | None,
    deployment: FlinkDeployment | None,
    at: Moment,
    kind: Maker = Maker.FLINK_DEPLOYMENT,
    name: str = "",
    namespace: str = "",
) -> Operated | None:
    """`operated` after a maker of this kind and name was read. `deployment` None: there is none. The same object if nothing changes.
    `namespace`: its namespace, if that is being deleted.

    A FlinkDeployment that can be read comes before what it makes.
    """
    if operated is None or (operated.kind, operated.name) == (kind, name):
        after = _observed(operated, deployment, at)
        return replace(after, namespace=namespace) if after and namespace and after.unwanted_since else after
    if deployment is None or (operated.is_read and operated.kind is Maker.FLINK_DEPLOYMENT):
        return operated
    return _wanted(_with_action(None, Operated(deployment, kind=kind, name=name), at), operated, at)


def _observed(operated: Operated | None, deployment: FlinkDeployment | None, at: Moment) -> Operated | None:
    if operated is None:
        if deployment is None:
            return None
        new = Operated(deployment, kind=deployment.kind, name=deployment.name)
        return _wanted(_with_action(None, new, at), None, at)
    if operated.deployment == deployment and operated.unread_since is None:
        return operated
    if deployment is None:
        return deleted(operated, at)
    before = operated.deployment
    if before is None or before.uid != deployment.uid:  # deleted and made anew
        anew = replace(operated, deployment=deployment, unread_since=None, changed_at=None)
        return _wanted(_with_action(None, _with_end(anew, at), at), operated, at)
    after = replace(
        operated, deployment=deployment, unread_since=None, changed_at=_changed_at(operated, before, deployment, at)
    )
    return _wanted(_with_action(operated, after, at), operated, at)


def deleted(operated: Operated, at: Moment) -> Operated:
    """`operated` after the maker was deleted."""
    gone = replace(operated, deployment=None, unread_since=None, changed_at=None)
    since, unseen = operated.unwanted_since, operated.unread_since is not None
    return replace(_with_end(gone, at), unwanted_since=since or at, unseen=operated.unseen if since else unseen)


def makes(
    operated: Operated | None, cluster_id: str, maker: Seen, leaders: Collection[str], last: Collection[str]
) -> bool:
    """Whether it makes the cluster's JobManagers. `leaders`: the hosts of those that lead; `last`: of those that led last.

    What did so before does; else that of the pod in which somebody leads, or led. If no pod is known: that with the cluster's id as its
    label `app`, or the only one where there is one cluster.
    """
    if operated and (operated.kind, operated.name) == (maker.kind, maker.name):
        return True
    if operated and operated.is_read and operated.kind is Maker.FLINK_DEPLOYMENT:
        return False
    if any(host in maker.hosts or host.partition(".")[0] in maker.hosts for host in (*leaders, *last)):
        return True
    if operated or maker.deployment is None or any(map(is_address, leaders)):
        return False
    return maker.alone or maker.app == cluster_id.rpartition("/")[2]


def unread(operated: Operated | None, at: Moment) -> Operated | None:
    """`operated` after the maker can no longer be read."""
    is_sure = operated is None or operated.unread_since or operated.kind is Maker.FLINK
    return operated if is_sure or operated is None else replace(operated, unread_since=at)


def ended(operated: Operated | None, at: Moment) -> Operated | None:
    """`operated` after Flink has withdrawn its leaders and deleted their ConfigMap: the cluster ended by itself, if nothing else is
    known."""
    if operated and operated.unwanted_since and operated.unread_since is None:
        return operated
    return Operated(None, unwanted_since=at, kind=Maker.FLINK)


def led(operated: Operated | None, since: Moment) -> Operated | None:
    """`operated` after a leader was published at `since`: an earlier end or deletion is of another JobManager."""
    is_past = operated and operated.kind is not Maker.FLINK_DEPLOYMENT and operated.deployment is None
    if is_past and operated and operated.unwanted_since and operated.unwanted_since.steady < since.steady:
        return None
    return operated


def starts_again(operated: Operated | None, since: Moment) -> bool:
    """Whether a leader that is missing since then was not wanted before, and is now."""
    wanted = operated.wanted_since if operated and operated.unwanted_since is None else None
    return wanted is not None and since.steady <= wanted.steady


def is_unwanted(operated: Operated | None) -> bool:
    """Whether the cluster is meant to have no leader, and that can be read."""
    return operated is not None and operated.unwanted_since is not None and operated.unread_since is None


def what_was_done(operated: Operated) -> str:
    """How the cluster was stopped on purpose: `Deployment flink-jobmanager was scaled to 0`."""
    deployment, subject = operated.deployment, clean(operated.subject) or "its FlinkDeployment"
    if unnamed := _UNNAMED.get(operated.kind):
        return unnamed
    if operated.namespace:
        return f"namespace {clean(operated.namespace)} is being deleted"
    if deployment is None or deployment.deleting:
        return f"{subject} was deleted"
    if deployment.finished:
        return f"{subject} finished"
    return f"{subject} was {'scaled to 0' if operated.subject else 'suspended'}"


def when_unwanted(operated: Operated) -> str:
    """Since when no leader is wanted, or when that was found: `since 2026-11-20 08:01:43 UTC`. Empty: a leader is wanted."""
    if operated.unwanted_since is None:
        return ""
    return f"{'found at' if operated.unseen else 'since'} {spoken(operated.unwanted_since.wall)}"


def keeps_jobs(operated: Operated) -> bool:
    """Whether jobs are meant to stay in the store while there is no leader."""
    return operated.kind is Maker.FLINK_DEPLOYMENT and operated.deployment is not None and operated.deployment.suspended


def stuck(operated: Operated | None) -> str:
    """Why the pod that should come cannot: nothing is excused any more. Empty: it does not say so."""
    return operated.deployment.stuck if operated and operated.is_read and operated.deployment else ""


def used_up(operated: Operated | None) -> Operated | None:
    """`operated` after a failover: an upgrade that is over explains no other failover."""
    return (
        replace(operated, plan=None, asked_at=None, began=None, ended=None) if operated and operated.ended else operated
    )


def disrupted(disruptions: Mapping[str, Disruption], uid: str, disruption: Disruption) -> Mapping[str, Disruption]:
    """The disruptions by the pod's uid, with one that was observed. The first observation counts."""
    if uid in disruptions:
        return disruptions
    return latest({**disruptions, uid: disruption})


def latest(disruptions: Mapping[str, Disruption]) -> dict[str, Disruption]:
    """No more than are remembered."""
    return dict(sorted(disruptions.items(), key=lambda item: item[1].at.steady)[-MOST_DISRUPTIONS:])


def _changed_at(operated: Operated, before: FlinkDeployment, now: FlinkDeployment, at: Moment) -> Moment | None:
    """When the spec changed that the operator has not processed. One that was never observed to change is of unknown age."""
    since = at if now.generation > before.generation else operated.changed_at
    if now.observed_generation is None:
        processed = now.reconciliation is Reconciliation.UPGRADING or now.reconciled_at != before.reconciled_at
    else:
        processed = now.observed_generation >= now.generation
    return None if processed else since


def _with_action(operated: Operated | None, after: Operated, at: Moment) -> Operated:
    """`after`, with what the operator does now. `operated`: the same FlinkDeployment, as it was known before."""
    deployment = after.deployment
    assert deployment  # noqa: S101  the callers have one
    missed = operated is None or operated.unread_since is not None
    said = moment_of(deployment.reconciled_at, at) if missed else at
    match deployment.reconciliation:
        case Reconciliation.UPGRADING | Reconciliation.ROLLING_BACK as state:
            plan = Plan.UPGRADE if state is Reconciliation.UPGRADING else Plan.ROLLBACK
            if after.plan is plan and after.began and after.ended is None:
                return after
            asked = operated.changed_at if operated else None
            return replace(after, plan=plan, asked_at=asked or after.changed_at, began=said, ended=None)
        case _ if operated and missed and (done := _unobserved_plan(operated, deployment)):
            return replace(after, plan=done, asked_at=operated.changed_at, began=said, ended=said, changed_at=None)
    return _with_end(after, said)


def _unobserved_plan(operated: Operated, now: FlinkDeployment) -> Plan | None:
    """What the operator finished while its FlinkDeployment could not be read."""
    before = operated.deployment
    if before is None or now.reconciled_at is None or now.reconciled_at == before.reconciled_at:
        return None
    if now.reconciliation is Reconciliation.ROLLED_BACK:
        return Plan.ROLLBACK
    return Plan.UPGRADE if operated.changed_at and (now.observed_generation or 0) >= before.generation else None


def _with_end(operated: Operated, at: Moment) -> Operated:
    return replace(operated, ended=at) if operated.began and operated.ended is None else operated


def _wanted(after: Operated, operated: Operated | None, at: Moment) -> Operated:
    deployment = after.deployment
    assert deployment  # noqa: S101  the callers have one
    since = operated.unwanted_since if operated else None
    if not deployment.is_wanted:
        unseen = operated is None or operated.unread_since is not None
        return replace(after, unwanted_since=since or at, unseen=after.unseen if since else unseen)
    return replace(after, unwanted_since=None, unseen=False, namespace="", wanted_since=at) if since else after


# -- what it means for a failover --------------------------------------------------------------------------------------


def intent(operated: Operated | None, opened: Moment, *, unseen: bool) -> Intent | None:
    """Why the leader was lost on purpose, by its FlinkDeployment. `unseen`: it was lost before `opened`, and that was not observed."""
    if operated is None:
        return None
    owner = operated.deployment.owner if operated.deployment else None
    if operated.plan is Plan.ROLLBACK and operated.began and _is_near(operated, opened, unseen=unseen):
        return Intent(Plan.ROLLBACK, operated.began.steady - opened.steady, owner)
    if unwanted := _unwanted(operated, opened):
        return Intent(*unwanted, owner, operated.subject)
    if operated.plan is Plan.UPGRADE and operated.began and _is_near(operated, opened, unseen=unseen):
        return Intent(Plan.UPGRADE, operated.began.steady - opened.steady, owner, operated.subject)
    return None


def _unwanted(operated: Operated, opened: Moment) -> tuple[Plan, int] | None:
    """Whether no leader was wanted any more, and how long after the loss that was observed."""
    since, deployment = operated.unwanted_since, operated.deployment
    if since is None:
        return None
    after = since.steady - opened.steady
    unread = operated.unread_since.steady if operated.unread_since else opened.steady
    # A cluster that outlives its FlinkDeployment is on its own.
    if after > LATE or not (deployment or after >= -BEFORE) or opened.steady - unread > UNREAD:
        return None
    is_suspended = deployment is not None and not deployment.deleting
    return Plan.SUSPENSION if is_suspended else Plan.DELETION, after


def revised(intent: Intent | None, operated: Operated | None, opened: Moment) -> Intent | None:
    """The intent of a failover in progress: an upgrade that is rolled back is a rollback."""
    rolls_back = operated is not None and operated.plan is Plan.ROLLBACK and operated.began
    if intent and intent.plan is Plan.UPGRADE and rolls_back and rolls_back.steady > opened.steady:
        return Intent(Plan.ROLLBACK, rolls_back.steady - opened.steady, intent.of)
    return intent


def drain(disruptions: Mapping[str, Disruption], leader: str, opened: Moment) -> Intent | None:
    """Whether the pod of this leader (an address) was drained."""
    for disruption in disruptions.values():
        after = disruption.at.steady - opened.steady
        if -BEFORE <= after <= LATE and is_pod_at(leader, disruption.address, disruption.pod):
            node = f"node {disruption.node}" if disruption.node else None
            return Intent(Plan.DRAIN, after, node, evicted=disruption.evicted)
    return None


def other_disruptions(disruptions: Mapping[str, Disruption], leader: str) -> Mapping[str, Disruption]:
    """The disruptions after a failover of this leader: another pod may get its address, or its name."""
    remaining = {uid: other for uid, other in disruptions.items() if not is_pod_at(leader, other.address, other.pod)}
    return disruptions if len(remaining) == len(disruptions) else remaining


def expected_until(operated: Operated | None, opened: Moment) -> int | None:
    """Until when (steady) a failover may turn out to be planned: the spec has changed, and the operator has yet to process it."""
    if operated is None or operated.changed_at is None:
        return None
    after = operated.changed_at.steady - opened.steady
    return opened.steady + AFTER if -BEFORE <= after <= LATE else None


def _is_near(operated: Operated, opened: Moment, *, unseen: bool) -> bool:
    """Whether the loss is that of the operator's plan: an upgrade that is stuck, or over, or that answers a loss explains none."""
    assert operated.began  # noqa: S101  the callers checked
    began, asked, ended = operated.began.steady, operated.asked_at, operated.ended
    if asked and asked.steady > opened.steady + LATE:
        return False
    over = ended is not None and opened.steady > ended.steady + LATE and not unseen
    return not over and opened.steady - BEFORE <= began <= opened.steady + AFTER
