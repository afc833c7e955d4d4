"""The identity of a transition: the same for every observer that saw it, whoever looked and when."""

from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import ConfigMapPosition, Held, LeaderInformation, Position, ZNodePosition
from sidecar.core.records import record_id


def transition_id(transition: Transition, observer: str) -> str:
    """A UUIDv5 of what happened in the store. What is about our view, and not about Flink, is `observer`'s alone."""
    component = transition.component
    what = (
        "transition",
        transition.cluster_id,
        transition.store,
        component.component,
        component.job_id,
        transition.kind,
    )
    match transition.kind, transition.before, transition.after:
        case ((Kind.GRANTED | Kind.CHANGED | Kind.READDRESSED), before, Held(leader, position)):
            session = before.leader.session_id if isinstance(before, Held) else None
            return record_id(*what, session, *_written(leader, position))
        case Kind.REVOKED, Held(leader, position), _:
            return record_id(*what, leader.session_id, *_written(leader, position))
        case Kind.RETIRED, _, _ if transition.last_known and transition.last_position:
            # Whether its leader or its graph went first: the job ended once.
            begun = _begun(transition.last_known, transition.last_position)
            return record_id(*what, transition.last_known.session_id, *begun)
    return record_id(*what, observer, transition.at.wall, transition.at.steady)


def _written(leader: LeaderInformation, position: Position) -> tuple[object, ...]:
    """Identifies one write of a leader. A store that was wiped counts from the beginning again, so its numbers alone
    do not.
    """
    match position:
        case ZNodePosition():
            stat = (position.czxid, position.mzxid, position.mtime, position.returned)
            return leader.session_id, leader.address, *stat
        case ConfigMapPosition():
            term = (position.uid, position.holder_identity, position.acquire_time)
            return leader.session_id, leader.address, *term, position.returned


def _begun(leader: LeaderInformation, position: Position) -> tuple[object, ...]:
    """Identifies one run of a job among others of the same id."""
    match position:
        case ZNodePosition():
            return position.czxid, position.returned
        case ConfigMapPosition():
            return leader.address, position.uid, position.returned
