"""What a transition makes of a component and of the failover in progress: one function for observations and for replayed records."""

from msgspec.structs import replace

from sidecar.core.cluster import episodes, split_leadership, unobserved
from sidecar.core.cluster.episodes import Episode
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.split_leadership import Contest
from sidecar.core.cluster.state import ComponentState
from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import Held, Unknown, Vacant


def evolve(
    known: ComponentState, episode: Episode | None, transition: Transition, *, complete: bool
) -> tuple[ComponentState, Episode | None]:
    """The component and the failover in progress behind `transition`. `complete`: the view of the store was, when it was observed."""
    at, kind = transition.at, transition.kind
    episode, absence = episodes.moved(episode, known.absence, transition)
    if kind is not Kind.OBSCURED:
        known = _with_nothing_missed(known)
    lasts = kind is Kind.READDRESSED
    known = replace(
        known,
        leadership=transition.after,
        since=known.since if lasts else at,
        discovered=known.discovered if lasts else kind is Kind.DISCOVERED,
        last_known=transition.last_known or known.last_known,
        contest=_contest(known.contest, transition),
        absence=absence,
    )
    match transition.after:
        case Held(leader, position):
            published_at = at.steady if complete and kind is not Kind.DISCOVERED else None
            known = replace(
                known,
                last_known=leader,
                last_position=position,
                vacated_at=None,
                last_led=None,
                published_at=published_at,
            )
        case Vacant():
            left_now = kind is Kind.REVOKED  # else it was vacant already when it was first observed
            last_led = transition.last_led if kind in {Kind.REVOKED, Kind.DISCOVERED} else None
            if last_led and last_led.latest is None:
                last_led = replace(last_led, latest=at.steady)
            known = replace(known, vacated_at=at if left_now else None, last_led=last_led, published_at=None)
        case Unknown():
            known = replace(known, vacated_at=None, last_led=None, published_at=None)
    return known, episode


def _with_nothing_missed(known: ComponentState) -> ComponentState:
    """`known` without the unobserved changes, which this transition reports."""
    if known.look:
        known = replace(known, look=replace(known.look, gap=unobserved.NO_GAP))
    if known.elections:
        known = replace(known, elections=replace(known.elections, gap=unobserved.NO_GAP))
    return known


def _contest(contest: Contest, transition: Transition) -> Contest:
    contest = split_leadership.succeeded(contest, transition.last_known, transition.leader, transition.at)
    if transition.split and contest.since is None:  # records may begin in the middle of a split
        contest = replace(contest, since=transition.at, returns=contest.returns or (transition.at.steady,))
    return contest
