"""Episodes: one failover moves several components, and is one thing that happened.

The first of the cluster's own components that leaves a leadership term opens an episode, keyed by the session ids of that term. So every
observer derives the same id, whichever component it observed first. It is LEADER_BACK when each of the cluster's own components has a
leader again, and closed when its jobs have one too, one process leads all, and nothing has changed for SETTLED. A failover before that
belongs to it. A job that fails over alone opens no episode.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final, assert_never
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.captures import Gathered
from sidecar.core.counted import Count
from sidecar.core.failover.causes import RELATED, Facts
from sidecar.core.failover.death_verdict import DeathVerdict
from sidecar.core.failover.recovery_state import Fault
from sidecar.core.flink import configmaps, znode_paths
from sidecar.core.flink.leadership import (
    Component,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    ZNodePosition,
)
from sidecar.core.leadership.leases import VacancyReason
from sidecar.core.leadership.transitions import Kind, Transition
from sidecar.core.leadership.unobserved import Downtime, Loss
from sidecar.core.moment import SECOND, Duration, Moment, Steady
from sidecar.core.pods import host_of, host_port, is_own_host
from sidecar.core.policy.policy import Store
from sidecar.core.records import RecordId, record_id

SETTLED: Final = 5 * SECOND
"""How long nothing may change before an episode is closed: a job gets its leader up to two seconds after the dispatcher."""
HANDOVER_PATIENCE: Final = 60 * SECOND
"""How long an episode waits for components that the previous leader still leads."""
JOB_PATIENCE: Final = 600 * SECOND
"""How long an episode waits for its jobs alone: in Kubernetes the address of a job that never restarts is not removed."""
LOOK_BACK: Final = 5 * SECOND
"""Jobs that left so shortly before the first component are part of it."""

_MOST_SUCCESSORS: Final = 8
_DELETED: Final = frozenset({VacancyReason.CONFIG_MAP_GONE, VacancyReason.MADE_ANEW})
_OLD_SCHEME: Final = "akka."
"""The scheme of addresses up to Flink 1.17."""


class Phase(StrEnum):
    """The phase of an open episode."""

    OPEN = "OPEN"
    LEADER_BACK = "LEADER_BACK"
    """Each of the cluster's own components has a leader."""


class Absence(Struct, frozen=True, gc=False):
    """One component's part in the latest episode in which it lost its leader."""

    episode_id: RecordId | None
    """None: it failed over alone."""
    since: Steady | None = None
    """Since when it has no leader (steady); None: it has one."""
    left_at: Steady = 0
    """When it last lost a leader (steady)."""
    vacant: Duration | None = None
    """Total observed vacancy. None: no vacancy was observed."""
    downtime: Downtime = Downtime()
    """Total time without a working leader."""
    leaders: Count = 0
    """How many leaders it has had since."""
    withdrew: bool = False
    """Whether the last leader removed its address itself (in ZooKeeper observed shortly after the loss)."""

    @property
    def not_working_before(self) -> Downtime:
        """For how long the leader had not worked when its loss was observed. Of several in turn, none of it is sure."""
        vacant, down = self.vacant or 0, self.downtime
        at_least = max(0, down.at_least - vacant) if self.leaders <= 1 else 0
        return Downtime(at_least, None if down.at_most is None else max(0, down.at_most - vacant))


class Successor(Struct, frozen=True):
    """A leader that followed, and when."""

    address: str
    at: Moment


class Episode(Struct, frozen=True):
    """One open failover."""

    id: str
    opened_at: Moment
    moved_at: Moment
    """When a component last changed."""
    facts: Facts
    before: LeaderInformation
    """The dispatcher's leader, or that of the first component that left. Likewise for `after`."""
    jobs_total: int
    away: int = 0
    """How many of the cluster's own components have no leader."""
    failovers: int = 0
    """How many failovers the episode holds so far: see `failovers_of`. Components that fail over one after another are one."""
    jobs_away: int = 0
    jobs_ended: int = 0
    jobs_lost: int = 0
    """How many of those that ended were lost: the leaders' ConfigMap was deleted, or their plans were while nobody led. Flink does not know
    them any more."""
    jobs_vanished: int = 0
    """How many of those lost only their plans. Each has an alert of its own."""
    longest_ended: int | None = None
    """The longest vacancy of a job that ended without another leader."""
    after: LeaderInformation | None = None
    successors: tuple[Successor, ...] = ()
    """The latest leaders of the cluster's own components since: a JobManager has two addresses."""
    gathered: Gathered = Gathered()
    closed_at: Moment | None = None
    """None: it is open, or nothing of it is left to be recorded."""
    death: DeathVerdict | None = None
    """Why the previous leader ended, once that is recorded."""

    @property
    def phase(self) -> Phase:
        return Phase.OPEN if self.away else Phase.LEADER_BACK


def key(cluster_id: str, store: Store, led: Collection[LeaderInformation], places: Collection[Position]) -> str:
    """The id of the episode that ends the term of these leaders at these positions. A leader that came back may leave its term again."""
    sessions = {str(leader.session_id) for leader in led}
    return record_id(
        "episode", cluster_id, store, *sorted(sessions), *sorted({_start_of_term(place) for place in places})
    )


def _start_of_term(place: Position) -> str:
    """Where in the store's history a leader began to lead: differs for a leader that came back."""
    if isinstance(place, ZNodePosition):
        return f"{place.czxid} {place.returned}" if place.returned else str(place.czxid)
    return place.returned or ""


def leaves(transition: Transition, absence: Absence | None) -> bool:
    """Whether the component leaves a leadership term now, or left it unobserved."""
    if is_away(absence):
        return False
    match transition.kind:
        case Kind.REVOKED | Kind.CHANGED:
            return True
        case Kind.DISCOVERED | Kind.GRANTED:
            return transition.last_known is not None and not transition.same_leader
        case Kind.RETIRED:
            return transition.plan_vanished or (
                transition.component.job_id is not None and _reason(transition) in _DELETED
            )
    return False


def has_part(absence: Absence | None, episode: Episode) -> bool:
    """Whether a component with this absence failed over in the episode."""
    return absence is not None and absence.episode_id == episode.id


def concerns(episode: Episode, moments: Iterable[Moment]) -> bool:
    """Whether one of these moments is in the episode, or shortly before it."""
    return any(episode.opened_at.steady - LOOK_BACK <= at.steady <= episode.moved_at.steady for at in moments)


def failovers_of(absences: Iterable[Absence | None]) -> int:
    """How many failovers one episode held, by the absences of the cluster's own components: the most leaders that one of them had. 0: the
    same leader came back.
    """
    return max((absence.leaders for absence in absences if absence), default=0)


def is_over(episode: Episode, now: Moment, *, divided: bool = False) -> bool:
    """Whether all have leaders again and nothing changed for SETTLED; `divided` (several processes lead) for HANDOVER_PATIENCE, and if only
    jobs are missing for JOB_PATIENCE.
    """
    quiet = now.steady - episode.moved_at.steady
    patience = HANDOVER_PATIENCE if divided else SETTLED
    return not episode.away and quiet >= (JOB_PATIENCE if episode.jobs_away else patience)


def is_divided(leaderships: Iterable[tuple[ComponentId, Leadership]]) -> bool:
    """Whether more than one process leads the cluster's own components: one after the other is handed over. In Kubernetes by the hosts of
    those that have a pod's address; up to Flink 1.14 each component has a lease of its own there.
    """
    processes = set()
    for component, leadership in leaderships:
        match leadership:
            case Held(_, ZNodePosition(ephemeral_owner=owner)) if owner:
                processes.add(str(owner))
            case Held(leader, ConfigMapPosition()) if component.component is not Component.REST_SERVER:
                processes.add(host_of(leader.address))
    return len(processes) > 1


def facts_at_opening(
    transition: Transition, loss: Loss | None, led: Collection[LeaderInformation], contended: int | None
) -> Facts:
    """The facts when `transition` opens an episode that ends the term of `led`. `contended`: how many JobManagers contended."""
    at, store = transition.at.steady, transition.store
    related = loss is not None and (loss.ended is None or at - loss.ended.steady <= RELATED)
    return Facts(
        store,
        opened=at,
        loss=loss if related else None,
        contended=contended,
        unseen=transition.kind in {Kind.DISCOVERED, Kind.GRANTED},
        quiet_end=_ends_quietly(store, led),
    )


def _ends_quietly(store: Store, led: Collection[LeaderInformation]) -> bool:
    """Whether this version of Flink leaves the traces of a crash when it shuts down cleanly."""
    match store:
        case Store.KUBERNETES:  # up to 1.17: it lets the lease expire
            return any(leader.address.startswith(_OLD_SCHEME) for leader in led)
        case (
            Store.ZOOKEEPER
        ):  # up to 1.14, where each component has its own session id: its znodes stay until the session ends
            return len({leader.session_id for leader in led}) > 1
        case _:
            assert_never(store)


def episode_after(
    episode: Episode | None, absence: Absence | None, transition: Transition, *, is_departure: bool
) -> tuple[Episode | None, Absence | None]:
    """The episode and the component's absence after `transition`. `is_departure`: see `leaves`."""
    away = is_away(absence)
    if transition.kind is Kind.OBSCURED or not (is_departure or away):
        return episode, absence
    part = absence if absence and (away or (episode and has_part(absence, episode))) else None
    part = part or Absence(episode.id if episode else None)
    if is_departure:
        part = replace(part, left_at=transition.at.steady, withdrew=_reason(transition) is VacancyReason.REMOVED)
    after = _absence_after(part, transition)
    if episode and has_part(part, episode):
        episode = _with_counts(episode, transition, is_departure, after)
        if transition.component.job_id is None:
            episode = _with_facts(episode, transition, is_departure=is_departure)
        episode = replace(episode, moved_at=transition.at)
    return episode, after


def lost_by(transition: Transition) -> Fault | None:
    """How Flink lost a job that has no plan any more. None: it may have ended."""
    if _reason(transition) in _DELETED:
        return Fault.DELETED
    return Fault.MISSING if transition.plan_vanished else None


def is_away(absence: Absence | None) -> bool:
    """Whether the component has had no leader since it lost one."""
    return absence is not None and absence.since is not None


def _absence_after(absence: Absence, transition: Transition) -> Absence:
    if not isinstance(transition.after, Held):
        return absence if absence.since is not None else replace(absence, since=transition.at.steady)
    vacant = absence.vacant
    if transition.vacant_for is not None:
        vacant = (vacant or 0) + transition.vacant_for
    leaders = absence.leaders + (not transition.same_leader)
    downtime = absence.downtime + (transition.downtime or Downtime(0, None))
    return replace(absence, since=None, vacant=vacant, downtime=downtime, leaders=leaders)


def _with_counts(episode: Episode, transition: Transition, is_departure: bool, after: Absence) -> Episode:
    ended = transition.kind is Kind.RETIRED
    change = int(is_departure) - int(ended or after.since is None)
    if transition.component.job_id is None:
        failovers = max(episode.failovers, after.leaders + is_away(after))
        return replace(episode, away=episode.away + change, failovers=failovers)
    if ended:
        longest = max((v for v in (episode.longest_ended, after.vacant) if v is not None), default=None)
        deleted = episode.facts.deleted or _reason(transition) in _DELETED
        vanished = episode.jobs_vanished + (transition.plan_vanished and not deleted)
        episode = replace(episode, jobs_vanished=vanished)
        lost = episode.jobs_lost + (deleted or transition.plan_vanished)
        episode = replace(episode, jobs_ended=episode.jobs_ended + 1, jobs_lost=lost, longest_ended=longest)
    return replace(episode, jobs_away=episode.jobs_away + change)


# -- facts for the cause -----------------------------------------------------------------------------------------------


def _reason(transition: Transition) -> VacancyReason | None:
    return transition.vacancy.reason if transition.vacancy else None


def _with_facts(episode: Episode, transition: Transition, *, is_departure: bool) -> Episode:
    """`episode`, with the facts that a transition of one of the cluster's own components adds."""
    facts = _with_departure(episode.facts, transition) if is_departure else episode.facts
    leader = transition.leader
    if leader is None:
        return replace(episode, facts=facts)
    is_first = episode.after is None or transition.component.component is Component.DISPATCHER
    after, address = leader if is_first else episode.after, leader.address
    known = {host_port(each.address) for each in episode.successors}
    new = () if host_port(address) in known else (Successor(address, transition.at),)
    successors = (*episode.successors, *new)[-_MOST_SUCCESSORS:]
    return replace(episode, facts=_with_arrival(facts, transition, address), after=after, successors=successors)


def _with_departure(facts: Facts, transition: Transition) -> Facts:
    """`facts`, now that one of the cluster's own components has left. In Kubernetes the reason says by whose doing."""
    reason = _reason(transition)
    withdrew = reason is VacancyReason.REMOVED
    lapsed_for = transition.vacancy.not_renewed_for if transition.vacancy else None
    return replace(
        facts,
        split=facts.split or transition.split,
        orderly=facts.orderly or withdrew,
        left=facts.left + 1,
        withdrawn=facts.withdrawn + withdrew,
        released=facts.released or reason is VacancyReason.RELEASED,
        deleted=facts.deleted or reason in _DELETED,
        not_renewed_for=facts.not_renewed_for or lapsed_for,
    )


def _with_arrival(facts: Facts, transition: Transition, later: str) -> Facts:
    """`facts`, now that one of the cluster's own components has a leader again, at the address `later`. The latest one counts,
    but if another process took over, its own reelection in the same failover does not bring back the one that was lost.
    """
    before, after = transition.last_position, transition.position
    earlier = transition.last_known.address if transition.last_known else ""
    first, last = _number(earlier), _number(later)
    old = _version(transition.cluster_id, earlier, before)
    new = _version(transition.cluster_id, later, after)
    return replace(
        facts,
        succeeded=True,
        split=facts.split or transition.split,
        returned=transition.same_leader,
        foreign=facts.foreign or (isinstance(after, ZNodePosition) and after.ephemeral_owner == 0),
        store_reelected=facts.store_reelected or bool(transition.store_reelected),
        same_process=False if facts.same_process is False else transition.same_process,
        same_place=facts.same_place is not False and host_port(earlier) == host_port(later),
        is_own_place=is_own_host(later, in_kubernetes=facts.store is Store.KUBERNETES),
        counted_on=facts.counted_on if first is None or last is None else last > first,
        upgraded=(old, new) if old and new and old != new else facts.upgraded,
    )


def _number(address: str) -> int | None:
    """The number of an endpoint, `3` in `…/user/rpc/dispatcher_3`: a process counts them."""
    try:
        digits = urlsplit(address).path.rpartition("_")[2]
    except ValueError:
        return None
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else None


def _version(cluster_id: str, address: str, place: Position | None) -> str | None:
    """The Flink versions that keep leaders there; None if that does not identify them."""
    if place is None or not address:
        return None
    if isinstance(place, ZNodePosition):
        layout: str | None = znode_paths.layout_of(place.path)
    else:
        layout = configmaps.layout_of(cluster_id, place.name, place.key)
    if layout or address.startswith("http"):
        return layout
    return "1.17 or older" if address.startswith(_OLD_SCHEME) else "1.18 or newer"
