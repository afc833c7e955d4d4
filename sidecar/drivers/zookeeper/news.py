"""What was read, as the observation that it is; what is none, as a line of the log."""

import logging

from sidecar.core.flink import znode_paths
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    NodeObserved,
    NodeRefused,
    NothingFound,
    PlaceRemoved,
)
from sidecar.drivers.zookeeper.session import Absent, Answer, Children, Question, Refused, TooManyChildren, Value
from sidecar.drivers.zookeeper.watch_set import PlaceGone, WatchReport

_log = logging.getLogger("sidecar.zookeeper")


def observation(cluster_id: str, where: str, at: Moment, told: WatchReport) -> ClusterObservation | None:
    """What the owner is to know of news from a watched path of the cluster at `where`."""
    path, answer = told.watched.path, told.answer
    match told.watched.question, answer:
        case Question.VALUE, Value(data, position):
            return NodeObserved(at, cluster_id, path, data, position, told.writes, told.births)
        case Question.VALUE, PlaceGone():
            return PlaceRemoved(at, cluster_id, path)
        case Question.VALUE, Refused(reason):
            return NodeRefused(at, cluster_id, path, reason)
        case Question.VALUE, _:
            return NodeObserved(at, cluster_id, path, writes=told.writes, births=told.births)
        case _, Refused(reason):
            _log.warning("cannot list %s in ZooKeeper %s: %s; retrying", path, where, reason)
        case _, TooManyChildren(count, most):
            _log.warning(
                "%s in ZooKeeper %s has %d children, more than %s: only children created from now on are watched",
                path,
                where,
                count,
                "can be read" if most is None else most,
            )
        case _ if znode_paths.is_list(path):
            return ChildrenObserved(at, cluster_id, path, answer.names if isinstance(answer, Children) else ())
    return None


def is_trace(told: WatchReport) -> bool:
    """Whether something is there."""
    return not isinstance(told.answer, Absent | PlaceGone) and told.answer != Children(())


def nothing_found(cluster_id: str, where: str, at: Moment, beside: Answer) -> NothingFound:
    """Nothing is there; `beside` is what was answered when the parent's children were asked for."""
    names: tuple[str, ...] | None = None
    if isinstance(beside, Absent):
        names = ()
    elif isinstance(beside, Children):
        names = tuple(name for name in beside.names if name != where.rpartition("/")[2])
    return NothingFound(at, cluster_id, f"{where} in ZooKeeper", names)
