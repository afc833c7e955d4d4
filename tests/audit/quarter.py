"""A quarter of four clusters as a report covers it, and the same in plain lists, from which its figures can be computed without Spark."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.records import Annotation, AnyRecord, EpisodeRecord, record_id
from tests.audit.histories import History, at
from tests.audit.spooling import NOON, annotation, death, episode, instant, recovery, session_id

HOUR, DAY = 3600.0, 86400.0
HOSTILE = (
    "</script><script>hostile=1</script><img src=http://127.0.0.1:9/x onerror=hostile=2>"
    "<a href='javascript:hostile=3'>'\"&amp;{{7*7}}"
)
OWN = ("dispatcher", "resource_manager", "rest_server")
BEGIN, END = -80 * DAY, 9.5 * DAY
"""The first and the last record, in seconds after noon of 2025-11-21: 2025-09-02 12:00 and 2025-12-01 00:00."""
_BEATS = 6 * HOUR
"""Observers record their coverage in longer pieces than real ones: there are fewer records."""


class Failover(Struct, frozen=True):
    """One failover of all components and jobs of a cluster; seconds, `began` after noon."""

    began: float
    vacant: float
    cause: str
    planned: bool | None = None
    down: tuple[float, float] | None = None
    note: str | None = None
    """An operator's, by which it was planned."""
    leaders: int = 1
    """0: the leader returned, which is no failover."""
    recorded: bool = True
    """Whether there is a record of the episode."""
    death: str | None = None
    """The reason of it that the observer in the pod knows, who also assessed the recovery. Another one knows nothing of both."""
    verdict: str | None = None

    @property
    def over(self) -> float:
        return self.began + self.vacant

    @property
    def total(self) -> float | None:
        """From 5 s before the loss was observed until 4 s after all were led again, if all jobs came back."""
        return None if self.verdict in {None, "unproven"} else 5 + self.vacant + 4

    @property
    def meant(self) -> bool | None:
        return True if self.note else self.planned


class Cluster(Struct, frozen=True):
    """What happened to a cluster."""

    id: str
    jobs: int
    failovers: Sequence[Failover]
    blind: Sequence[tuple[float, float]] = ()
    vacant_from: float | None = None
    """No leader since then."""

    def names(self) -> list[tuple[str, str | None]]:
        return [(name, None) for name in OWN] + [("job", f"{number:032x}") for number in range(self.jobs)]


def _day(day: float, hour: float = 0.0) -> float:
    return (day - 0.5) * DAY + hour * HOUR


CLUSTERS = (
    Cluster(
        "orders",
        14,
        (
            Failover(
                _day(-70, 3.2), 11.4, "jobmanager_lost", None, (11.4, 76.4), death="oom_killed", verdict="recovered"
            ),
            Failover(_day(-52, 9), 0.4, "planned_upgrade", True, (0.4, 0.4)),
            Failover(_day(-51, 14), 0.5, "planned_upgrade", True, (0.5, 0.5)),
            Failover(_day(-33, 23.99), 0.2, "graceful_handover", False, (0.2, 0.2)),
            Failover(_day(-18, 2.75), 41.0, "jobmanager_lost", False, (49.0, 56.0), death="oom_killed", verdict="lost"),
            Failover(
                _day(-18, 2.9), 6.5, "restarted_in_place", False, (6.5, 22.5), death="unknown", verdict="unproven"
            ),
            Failover(_day(-4, 10), 0.3, "rewritten_by_flink", False, None, leaders=0),
            Failover(_day(2, 17.5), 2.2, "node_drain", True, (2.2, 2.2), death="drained", verdict="recovered"),
        ),
        blind=((_day(-40, 22), _day(-38, 7)), (_day(-18, 2.0), _day(-18, 2.7))),
    ),
    Cluster(
        "payments",
        3,
        (
            Failover(_day(-61, 5), 3.5, "store_outage", None, (0.0, 31.0)),
            Failover(
                _day(-26, 11), 0.8, "graceful_handover", None, (0.8, 0.8), note="The node was drained for a new kernel."
            ),
            Failover(
                _day(5, 8.25), 1900.0, "jobmanager_lost", False, (1900.0, 1916.0), death="killed", verdict="degraded"
            ),
        ),
    ),
    Cluster(HOSTILE, 1, (Failover(_day(-9, 12), 0.05, "unknown", None, None),)),
    Cluster(
        "clicks",
        2,
        (Failover(_day(9, 19), 4.0, "", recorded=False),),
        blind=((_day(-75), _day(-72)),),
        vacant_from=_day(9, 20),
    ),
)
ALONE = ("payments", _day(8, 1))
"""A cluster, of which one job changes its leader outside of any failover."""


def records(clusters: Sequence[Cluster] = CLUSTERS) -> list[AnyRecord]:
    """What sidecars recorded of it."""
    return [record for cluster in clusters for record in _records(cluster)]


def _records(cluster: Cluster) -> Iterator[AnyRecord]:
    history = History(cluster.id)
    session = [session_id(f"{number:x}")[:-2] + f"{number:02}" for number in range(len(cluster.failovers) + 1)]
    current = session[0]
    where = f"pekko.tcp://flink@<b onmouseover=hostile=4>{HOSTILE}:6123/user" if cluster.id == HOSTILE else None
    for component, job_id in cluster.names():
        history.discovered(BEGIN, current, component=component, job_id=job_id)
    for number, failover in enumerate(cluster.failovers):
        after = session[number + 1] if failover.leaders else current
        episode_id = record_id("quarter", cluster.id, failover.began)
        bounds = dict(
            zip(("downtime_seconds_at_least", "downtime_seconds_at_most"), failover.down or (None, None), strict=True)
        )
        for component, job_id in cluster.names():
            more: dict[str, Any] = {"component": component, "job_id": job_id, "episode_id": episode_id}
            history.revoked(failover.began, current, **more)
            more |= (
                bounds | ({"after_address": where} if where else {}) | ({} if failover.leaders else {"returned": True})
            )
            history.granted(failover.over, after, current, failover.vacant, **more)
        if failover.recorded:
            yield _episode(cluster, failover, episode_id, (current, after), where)
        if failover.note:
            yield _note(cluster, failover, episode_id)
        if failover.death:
            yield from _ended(cluster, failover, episode_id)
        current = after
    if cluster.id == ALONE[0]:
        job = {"component": "job", "job_id": f"{0:032x}"}
        history.happened(ALONE[1], "CHANGED", session_id("f"), current, **job)
    if cluster.vacant_from is not None:
        for component, job_id in cluster.names():
            history.revoked(cluster.vacant_from, current, component=component, job_id=job_id, episode_id="open")
    edges = sorted({BEGIN, END, *(edge for stretch in cluster.blind for edge in stretch)})
    for began, ended in pairwise(edges):
        history.covered(began, ended, "blind" if (began, ended) in cluster.blind else "seeing", piece=_BEATS)
    for failover in (each for each in cluster.failovers if each.recorded):
        queued = failover.over + 5
        history.notified(queued, "queued", queued=queued)
        outcome = "gave_up" if failover.vacant == 3.5 else "delivered"
        history.notified(queued + failover.vacant / 4, outcome, 1, queued=queued)
    # Ids are those of the cluster, whatever its name.
    yield from (replace(record, id=record_id("quarter", cluster.id, record.id)) for record in history.records)


def _episode(
    cluster: Cluster, failover: Failover, episode_id: str, sessions: tuple[str, str], where: str | None
) -> EpisodeRecord:
    before, after = sessions
    least, most = failover.down or (None, None)
    return replace(
        episode(0, at(failover.over + 5)),
        cluster_id=cluster.id,
        id=episode_id,
        episode_id=episode_id,
        opened_at=instant(at(failover.began)),
        closed_at=instant(at(failover.over)),
        cause=failover.cause,
        confidence="medium",
        jobs_affected=cluster.jobs,
        jobs_total=cluster.jobs,
        vacant_seconds=failover.vacant,
        vacant_seconds_by_component={},
        downtime_seconds_at_least=least,
        downtime_seconds_at_most=most,
        before_session_id=before,
        before_address=f"pekko.tcp://flink@jm-{before[0]}:6123/user/rpc/dispatcher_0",
        after_session_id=after,
        after_address=where or f"pekko.tcp://flink@jm-{after[0]}:6123/user/rpc/dispatcher_0",
        planned=failover.planned,
        failovers=failover.leaders,
    )


def _ended(cluster: Cluster, failover: Failover, episode_id: str) -> Iterator[AnyRecord]:
    """One observer knows more than the other, which is faster. Rows of jobs are not counted as failovers."""
    dead = instant(at(failover.began - 5))
    about: dict[str, Any] = {
        "cluster_id": cluster.id,
        "episode_id": episode_id,
        "observed_at": instant(at(failover.over + 9)),
    }
    elsewhere: dict[str, Any] = {**about, "observer": "jm-1", "observed_at": instant(at(failover.over))}
    reason: dict[str, Any] = {
        "reason": failover.death,
        "confidence": "none" if failover.death == "unknown" else "medium",
    }
    came_back: dict[str, Any] = {"verdict": failover.verdict, "opened_at": instant(at(failover.began)), "dead_at": dead}
    for name, seconds in (("dispatcher_led_at", 0), ("led_at", 0), ("running_at", 2), ("checkpointed_at", 4)):
        came_back[name] = instant(at(failover.over + seconds)) if failover.total else None
    job: dict[str, Any] = {"job_id": "0" * 32, "name": HOSTILE, "outcome": "running", "restored_from": "latest"}
    made: tuple[AnyRecord, ...] = (
        death(0, ended_at=dead, **about, **reason),
        death(0, ended_at=None, **elsewhere, reason="unknown", confidence="none"),
        recovery(0, **about, **came_back),
        recovery(0, **elsewhere, verdict="unproven", running_at=None),
        recovery(0, **about, **came_back, **job),
    )
    yield from (replace(record, id=record_id(episode_id, number)) for number, record in enumerate(made))


def _note(cluster: Cluster, failover: Failover, episode_id: str) -> Annotation:
    noted = failover.over + 2 * DAY
    about = {"cluster_id": cluster.id, "id": record_id("note", episode_id), "episode_id": episode_id}
    return replace(annotation(0, at(noted)), **about, reason=failover.note or "", planned=True)


# -- the same, computed from the lists -----------------------------------------------------------------------------------


class Truth(Struct, frozen=True):
    """Seconds of a cluster on a day, summed over its components and jobs."""

    led: float
    vacant: float
    unobserved: float

    def __add__(self, other: "Truth") -> "Truth":
        return Truth(self.led + other.led, self.vacant + other.vacant, self.unobserved + other.unobserved)


NOTHING = Truth(0.0, 0.0, 0.0)


def days() -> list[date]:
    """Every UTC day of the quarter."""
    first, last = (NOON + timedelta(seconds=edge) for edge in (BEGIN, END - 1))
    return [first.date() + timedelta(days=number) for number in range((last.date() - first.date()).days + 1)]


def happened(began: float = BEGIN, ended: float = END) -> list[tuple[Cluster, Failover]]:
    """The failovers that were recorded in that time, by when they began."""
    failovers = [
        (cluster, failover)
        for cluster in CLUSTERS
        for failover in cluster.failovers
        if failover.leaders and failover.recorded and began <= failover.over + 5 < ended
    ]
    return sorted(failovers, key=lambda pair: pair[1].began)


def truth(cluster: Cluster, day: date) -> Truth:
    """For how long it was led on that day, and so on: each piece between two edges is one or the other."""
    midnight = (datetime(day.year, day.month, day.day, tzinfo=UTC) - NOON).total_seconds()
    low, high = max(BEGIN, midnight), min(END, midnight + DAY)
    away = [(failover.began, failover.over) for failover in cluster.failovers]
    if cluster.vacant_from is not None:
        away.append((cluster.vacant_from, END))
    edges = sorted({low, high, *(edge for stretch in (*away, *cluster.blind) for edge in stretch if low < edge < high)})
    sums = [0.0, 0.0, 0.0]
    for began, ended in pairwise(edges):
        middle = (began + ended) / 2
        hidden, vacant = (any(a <= middle < b for a, b in stretches) for stretches in (cluster.blind, away))
        sums[2 if hidden else 1 if vacant else 0] += (ended - began) * len(cluster.names())
    return Truth(*sums)
