"""Episodes: one failover moves several components, and is one thing that happened.

An episode is opened by the first of the cluster's own components that leaves a leadership term, and keyed by that term: by the session
ids that led before. So every observer derives the same id, whichever component it saw leave first. It is LEADER_BACK when somebody leads
each of the cluster's own components again, and over when jobs are led as well and nothing has moved for a moment. A failover that comes
before that belongs to it. A job that moves by itself opens none.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster.causes import RELATED, Facts, Loss
from sidecar.core.cluster.downtime import Downtime
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.transitions import Transition
from sidecar.core.cluster.vacancy import VacancyReason
from sidecar.core.evidence import Gathered
from sidecar.core.flink import configmaps, znode_paths
from sidecar.core.flink.leadership import (
    Component,
    LeaderInformation,
    Position,
    ZNodePosition,
    host_port,
)
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Store
from sidecar.core.records import record_id

SETTLED: Final = 5 * SECOND
"""So long nothing may move before an episode is over: a job is led up to two seconds after its dispatcher."""
JOB_PATIENCE: Final = 600 * SECOND
"""So long an episode waits for its jobs alone: in Kubernetes the address of a job that never restarts is not removed."""
LOOK_BACK: Final = 5 * SECOND
"""Jobs that left so shortly before the first component are part of it."""

_OLD_SCHEME: Final = "akka."
"""Of addresses up to Flink 1.17."""


class Phase(StrEnum):
    """How far an episode is that is not over."""

    OPEN = "OPEN"
    LEADER_BACK = "LEADER_BACK"
    """Somebody leads each of the cluster's own components."""


class Absence(Struct, frozen=True):
    """What one component has to do with the latest episode in which it left a leader."""

    episode_id: str | None
    """None: it left by itself."""
    since: int | None = None
    """Since when it has no leader (steady); None: it has one."""
    left_at: int = 0
    """When it left a leader last (steady)."""
    vacant: int | None = None
    """How long it was observed without a leader in total; None: never observed vacant."""
    downtime: Downtime = Downtime()
    """For how long no leader of it worked, all in all."""
    leaders: int = 0
    """How many have led it since it left."""
    withdrew: bool = False
    """Whether the leader that it left last had removed its address itself (ZooKeeper: heard a moment after that it left)."""


class Episode(Struct, frozen=True):
    """One failover that is not over yet."""

    id: str
    opened_at: Moment
    moved_at: Moment
    """When something moved last."""
    facts: Facts
    before: LeaderInformation
    """The leader of the dispatcher, or of the component that left first; the same for `after`."""
    jobs_total: int
    away: int = 0
    """How many of the cluster's own components have no leader."""
    failovers: int = 0
    """How many there have been in it: vacancies that began when all of these were led, or leaders that followed each other without one."""
    jobs_away: int = 0
    jobs_ended: int = 0
    longest_ended: int | None = None
    """The longest vacancy of a job that ended instead of being led again."""
    after: LeaderInformation | None = None
    gathered: Gathered = Gathered()

    @property
    def phase(self) -> Phase:
        return Phase.OPEN if self.away else Phase.LEADER_BACK


def key(cluster_id: str, store: Store, led: Collection[LeaderInformation], places: Collection[Position]) -> str:
    """The id of the episode in which the term of these leaders in these places ends. One who came back in its term may leave it again."""
    sessions = {str(leader.session_id) for leader in led}
    return record_id("episode", cluster_id, store, *sorted(sessions), *sorted({_begun(place) for place in places}))


def _begun(place: Position) -> str:
    """Distinguishes a leader that came back from the same one before: where in the store's history it began to lead."""
    if isinstance(place, ZNodePosition):
        return f"{place.czxid} {place.returned}" if place.returned else str(place.czxid)
    return place.returned or ""


def leaves(transition: Transition, absence: Absence | None) -> bool:
    """Whether the component leaves a leadership term, or left it unobserved."""
    if is_away(absence):
        return False
    match transition.kind:
        case Kind.REVOKED | Kind.CHANGED:
            return True
        case Kind.DISCOVERED | Kind.GRANTED:
            return transition.last_known is not None and not transition.same_leader
    return False


def belongs(transition: Transition, absence: Absence | None, episode: Episode) -> bool:
    """Whether the transition is a part of the episode."""
    return transition.kind is not Kind.OBSCURED and (leaves(transition, absence) or has_part(absence, episode))


def has_part(absence: Absence | None, episode: Episode) -> bool:
    """Whether a component with this absence was moved by the episode."""
    return absence is not None and absence.episode_id == episode.id


def concerns(episode: Episode, moments: Iterable[Moment]) -> bool:
    """Whether something that happened at one of these moments has to do with it."""
    return any(episode.opened_at.steady - LOOK_BACK <= at.steady <= episode.moved_at.steady for at in moments)


def is_over(episode: Episode, now: Moment) -> bool:
    """Whether all are led again and nothing has moved for a moment, or for too long only jobs are waited for."""
    quiet = now.steady - episode.moved_at.steady
    return not episode.away and quiet >= (JOB_PATIENCE if episode.jobs_away else SETTLED)


def facts_at_opening(
    transition: Transition, loss: Loss | None, led: Collection[LeaderInformation], contended: int | None
) -> Facts:
    """What is known when `transition` opens an episode in which the term of `led` ends, for which so many `contended`."""
    at, store = transition.at.steady, transition.store
    related = loss is not None and (loss.ended is None or at - loss.ended.steady <= RELATED)
    sessions = {leader.session_id for leader in led}
    old = any(leader.address.startswith(_OLD_SCHEME) for leader in led)
    return Facts(
        store,
        opened=at,
        loss=loss if related else None,
        contended=contended,
        unseen=transition.kind in {Kind.DISCOVERED, Kind.GRANTED},
        # Up to 1.17 a JobManager that ends in order leaves its lease to run out. Up to 1.14, when each component has a session id of its
        # own, it leaves its znodes to the end of its ZooKeeper session.
        quiet_end=old if store is Store.KUBERNETES else len(sessions) > 1,
    )


def moved(
    episode: Episode | None, absence: Absence | None, transition: Transition
) -> tuple[Episode | None, Absence | None]:
    """The episode and the component's absence, now that `transition` happened to the component."""
    left = leaves(transition, absence)
    away = is_away(absence)
    if transition.kind is Kind.OBSCURED or not (left or away):
        return episode, absence
    known = absence if absence and (away or (episode and has_part(absence, episode))) else None
    known = known or Absence(episode.id if episode else None)
    if left:
        known = replace(known, left_at=transition.at.steady, withdrew=_reason(transition) is VacancyReason.REMOVED)
    after = _absence_after(known, transition)
    if episode and has_part(known, episode):
        episode = _counted(episode, transition, left, after)
        if transition.component.job_id is None:
            episode = _informed(episode, transition, left=left)
        episode = replace(episode, moved_at=transition.at)
    return episode, after


def is_away(absence: Absence | None) -> bool:
    """Whether the component has had no leader since it left one."""
    return absence is not None and absence.since is not None


def _absence_after(known: Absence, transition: Transition) -> Absence:
    if transition.leader is None:
        return known if known.since is not None else replace(known, since=transition.at.steady)
    vacant = known.vacant
    if transition.vacant_for is not None:
        vacant = (vacant or 0) + transition.vacant_for
    leaders = known.leaders + (not transition.same_leader)
    downtime = known.downtime + (transition.downtime or Downtime(0, None))
    return replace(known, since=None, vacant=vacant, downtime=downtime, leaders=leaders)


def _counted(episode: Episode, transition: Transition, left: bool, after: Absence) -> Episode:
    ended = transition.kind is Kind.RETIRED
    change = int(left) - int(ended or after.since is None)
    if transition.component.job_id is None:
        begins = change > 0 and not episode.away
        failovers = max(episode.failovers + begins, after.leaders)
        return replace(episode, away=episode.away + change, failovers=failovers)
    if ended:
        longest = max((v for v in (episode.longest_ended, after.vacant) if v is not None), default=None)
        episode = replace(episode, jobs_ended=episode.jobs_ended + 1, longest_ended=longest)
    return replace(episode, jobs_away=episode.jobs_away + change)


# -- facts for the cause -----------------------------------------------------------------------------------------------


def _reason(transition: Transition) -> VacancyReason | None:
    return transition.vacancy.reason if transition.vacancy else None


def _informed(episode: Episode, transition: Transition, *, left: bool) -> Episode:
    """`episode`, with the facts that a transition of one of the cluster's own components adds."""
    facts = _with_departure(episode.facts, transition) if left else episode.facts
    if transition.leader is None:
        return replace(episode, facts=facts)
    is_first = episode.after is None or transition.component.component is Component.DISPATCHER
    after = transition.leader if is_first else episode.after
    return replace(episode, facts=_with_arrival(facts, transition), after=after)


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
        deleted=facts.deleted or reason in {VacancyReason.CONFIG_MAP_GONE, VacancyReason.MADE_ANEW},
        not_renewed_for=facts.not_renewed_for or lapsed_for,
    )


def _with_arrival(facts: Facts, transition: Transition) -> Facts:
    """`facts`, now that one of the cluster's own components has a leader again. The latest one counts."""
    before, after = transition.last_position, transition.position
    leaders = (transition.last_known, transition.leader)
    earlier, later = (leader.address if leader else "" for leader in leaders)
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
        same_process=transition.same_process,
        same_place=host_port(earlier) == host_port(later),
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
        found: str | None = znode_paths.layout_of(place.path)
    else:
        found = configmaps.layout_of(cluster_id, place.name, place.key)
    if found or address.startswith("http"):
        return found
    return "1.17 or older" if address.startswith(_OLD_SCHEME) else "1.18 or newer"
