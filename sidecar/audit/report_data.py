"""The report's figures: a bounded number, computed in Spark, however long the log is."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from pyspark.sql import DataFrame, Row, SparkSession

LANES: Final = 24
"""The maximum number of leaderships in the chart."""
INTERVALS: Final = 120
"""For each leadership, the longest intervals and unobserved intervals, and the latest failovers: this many of each."""
TABLE_ROWS: Final = 10
NO_CAUSE: Final = "no cause recorded"
EDGES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 3600.0)
"""Limits of the histograms, in seconds."""


class Interval(Struct, frozen=True):
    """A term, a vacancy, or an unobserved time."""

    began: datetime
    ended: datetime
    address: str | None = None
    """The leader; None: no leader."""
    session_id: str | None = None


class Lane(Struct, frozen=True):
    """One leadership over time."""

    cluster_id: str
    component: str
    job_id: str | None
    intervals: Sequence[Interval]
    unobserved: Sequence[Interval]
    failovers: Sequence[datetime]


class Day(Struct, frozen=True):
    """Seconds of one UTC day, summed over all leaderships of all clusters."""

    day: date
    led: float
    vacant: float
    unobserved: float


class Findings(Struct, frozen=True):
    """The figures of one period."""

    begin: datetime
    end: datetime
    """The time of the last record."""
    known_until: datetime | None
    """The end of the coverage records that exist for every cluster; None: a cluster has none."""
    clusters: int
    leaderships: int
    intervals: int
    """The number of intervals in the log, shown or not."""
    lanes: Sequence[Lane]
    failovers: Sequence[tuple[date, str, int]]
    """Day, cause, count."""
    vacancies: Sequence[tuple[str, int, int]]
    """Component, place among EDGES, count."""
    mttr: Row
    days: Sequence[Day]
    worst: Sequence[Row]
    gaps: Sequence[Row]
    alerts: Sequence[Row]
    """By destination."""
    delays: Sequence[tuple[int, int]]
    """Place among EDGES, number of deliveries."""


def find(session: SparkSession, since: timedelta) -> Findings | None:
    """The figures from `since` before the last record (or from the first record) on; None when nothing is recorded.

    The views must be registered in the session.
    """
    recorded = session.sql(_RECORDED).collect()[0]
    if recorded.until is None:
        return None
    begin, end = max(utc(recorded.since), utc(recorded.until) - since), utc(recorded.until)
    for view in _CACHED_VIEWS:
        session.catalog.cacheTable(view)
    try:
        return _find(session, begin, end)
    finally:
        for view in reversed(_CACHED_VIEWS):
            session.catalog.uncacheTable(view)


def _find(session: SparkSession, begin: datetime, end: datetime) -> Findings:
    def ask(query: str) -> list[Row]:
        return _asked(session, query, begin, end).collect()

    for name, query in _STEPS.items():
        _asked(session, query, begin, end).createOrReplaceTempView(name)
    (counted,) = ask(_COUNTED)
    (known,) = ask(_KNOWN)
    return Findings(
        begin=begin,
        end=end,
        known_until=utc(known.until) if known.until and not known.unknown else None,
        clusters=counted.clusters,
        leaderships=counted.leaderships,
        intervals=counted.intervals,
        lanes=_lanes(ask),
        failovers=[tuple(row) for row in ask(_FAILOVERS)],
        vacancies=[tuple(row) for row in ask(_VACANCIES)],
        mttr=ask(_MTTR)[0],
        days=[Day(*row) for row in ask(_DAYS)],
        worst=ask(_WORST),
        gaps=ask(_GAPS),
        alerts=ask(_ALERTS),
        delays=[tuple(row) for row in ask(_DELAYS)],
    )


def _lanes(ask: Callable[[str], list[Row]]) -> list[Lane]:
    """The leaderships with the most terms, sorted by cluster."""
    intervals, unobserved, failovers = (
        defaultdict[tuple[str, str | None, str | None], list[Any]](list) for _ in range(3)
    )
    for row in ask(_LONGEST):
        leader = (row.address, row.session_id) if row.state == "HELD" else ()
        intervals[row.cluster_id, row.component, row.job_id].append(Interval(utc(row.began), utc(row.ended), *leader))
    for row in ask(_UNSEEN):
        unobserved[row.cluster_id, row.component, row.job_id].append(Interval(utc(row.began), utc(row.ended)))
    for row in ask(_LATEST):
        failovers[row.cluster_id, row.component, row.job_id].append(utc(row.at))
    lanes = [(row.cluster_id, row.component, row.job_id) for row in ask("SELECT * FROM lanes")]
    return [
        Lane(*lane, intervals[lane], unobserved[lane[0], None, None] + unobserved[lane], failovers[lane])
        for lane in sorted(lanes, key=lambda lane: (lane[0], lane[2] or "", lane[1]))
    ]


def _asked(session: SparkSession, query: str, begin: datetime, end: datetime) -> DataFrame:
    bounds = {"edges": list(EDGES), "lanes": LANES, "intervals": INTERVALS, "rows": TABLE_ROWS}
    values = bounds | {"begin": begin, "end": end}
    return session.sql(query, args={name: value for name, value in values.items() if f":{name}" in query})


def utc(instant: datetime) -> datetime:
    """An instant of Spark (naive, in the time zone of this machine) in UTC."""
    return instant.astimezone(UTC)


_CACHED_VIEWS: Final = (
    "leadership",
    "known_until",
    "sight",
    "failovers",
    "availability",
    "unobserved",
    "alert_deliveries",
)
"""Views that are computed once; a view may query those before it."""

_STEPS: Final = {
    "shown": """
        SELECT
          cluster_id, component, job_id, state, address, session_id, greatest(began_at, :begin) AS began, coalesce(ended_at, :end) AS ended
        FROM leadership
        WHERE coalesce(ended_at, :end) > :begin AND began_at < :end""",
    "lanes": """
        SELECT cluster_id, component, job_id FROM shown GROUP BY ALL ORDER BY count(*) DESC, cluster_id, component, job_id LIMIT :lanes""",
}
"""Temporary views that the queries below share."""

_RECORDED: Final = """
    SELECT min(since) AS since, max(until) AS until FROM (
      SELECT `from` AS since, `to` AS until FROM coverage
      UNION ALL SELECT observed_at, observed_at FROM transitions
      UNION ALL SELECT observed_at, observed_at FROM notifications
    )"""
_COUNTED: Final = """
    SELECT count(DISTINCT cluster_id) AS clusters, count(DISTINCT cluster_id, component, coalesce(job_id, '')) AS leaderships,
      count(*) AS intervals
    FROM shown"""
_LONGEST: Final = """
    SELECT * FROM (
      SELECT shown.*, row_number() OVER (
        PARTITION BY cluster_id, component, job_id ORDER BY unix_micros(ended) - unix_micros(began) DESC, began
      ) AS nth
      FROM shown LEFT SEMI JOIN lanes
        ON shown.cluster_id = lanes.cluster_id AND shown.component = lanes.component AND shown.job_id <=> lanes.job_id
    ) WHERE nth <= :intervals AND state <> 'UNREADABLE' ORDER BY began"""
_UNSEEN: Final = """
    SELECT cluster_id, component, job_id, greatest(began_at, :begin) AS began, coalesce(ended_at, :end) AS ended
    FROM (
      SELECT *, row_number() OVER (PARTITION BY cluster_id, component, job_id ORDER BY seconds DESC) AS nth
      FROM unobserved LEFT SEMI JOIN lanes USING (cluster_id)
      WHERE what <> 'CHANGES' AND coalesce(ended_at, :end) > :begin
    ) WHERE nth <= :intervals ORDER BY began"""
_LATEST: Final = """
    SELECT cluster_id, component, job_id, at FROM (
      SELECT failovers.*, row_number() OVER (PARTITION BY cluster_id, component, job_id ORDER BY at DESC) AS nth
      FROM failovers LEFT SEMI JOIN lanes
        ON failovers.cluster_id = lanes.cluster_id AND failovers.component = lanes.component AND failovers.job_id <=> lanes.job_id
      WHERE at >= :begin
    ) WHERE nth <= :intervals ORDER BY at"""
_FAILOVERS: Final = f"""
    SELECT date(at) AS day, coalesce(cause, '{NO_CAUSE}') AS cause, count(*) AS n
    FROM failovers WHERE at >= :begin GROUP BY ALL ORDER BY ALL"""  # noqa: S608  our own text
_VACANCIES: Final = """
    SELECT component, size(filter(:edges, edge -> edge <= vacant_seconds)) AS place, count(*) AS n
    FROM failovers WHERE at >= :begin AND vacant_seconds IS NOT NULL GROUP BY ALL ORDER BY ALL"""
_MTTR: Final = """
    SELECT count(*) AS failovers, count(vacant_seconds) AS measured, approx_percentile(vacant_seconds, 0.5, 10000) AS p50,
      approx_percentile(vacant_seconds, 0.95, 10000) AS p95, max(vacant_seconds) AS longest,
      max(downtime_seconds_at_least) AS down_at_least, max(downtime_seconds_at_most) AS down_at_most,
      count_if(downtime_seconds_at_most IS NULL) AS without_downtime
    FROM failovers WHERE at >= :begin"""
_DAYS: Final = """
    SELECT day, sum(led_seconds) AS led, sum(vacant_seconds) AS vacant, sum(unobserved_seconds) AS unobserved
    FROM availability WHERE day >= date(:begin) GROUP BY day ORDER BY day"""
_WORST: Final = """
    SELECT cluster_id, component, sum(vacant_seconds) AS vacant, sum(unobserved_seconds) AS unobserved,
      sum(led_seconds) / nullif(sum(led_seconds) + sum(vacant_seconds), 0) AS availability
    FROM availability WHERE day >= date(:begin) GROUP BY cluster_id, component
    HAVING vacant > 0 OR unobserved > 0 ORDER BY availability, unobserved DESC, cluster_id, component LIMIT :rows"""
_GAPS: Final = """
    SELECT cluster_id, component, began_at, ended_at, (unix_micros(ended_at) - unix_micros(began_at)) / 1e6D AS seconds
    FROM (
      SELECT cluster_id, component, began_at, least(ended_at, until) AS ended_at
      FROM unobserved JOIN known_until USING (cluster_id) WHERE what <> 'CHANGES'
    )
    WHERE ended_at > date(:begin) AND began_at < ended_at
    ORDER BY seconds DESC, cluster_id, component LIMIT :rows"""
_KNOWN: Final = """
    SELECT min(until) AS until, count_if(until IS NULL) AS unknown
    FROM (SELECT DISTINCT cluster_id FROM shown) FULL JOIN known_until USING (cluster_id)"""
_ALERTS: Final = """
    SELECT destination, count_if(outcome <> 'already_told') AS queued,
      count_if(outcome = 'delivered') AS delivered, count_if(outcome = 'gave_up') AS gave_up,
      count_if(possible_duplicate) AS duplicates, max(attempts) AS attempts,
      approx_percentile(CASE WHEN outcome = 'delivered' THEN seconds END, 0.5, 10000) AS p50,
      approx_percentile(CASE WHEN outcome = 'delivered' THEN seconds END, 0.95, 10000) AS p95
    FROM alert_deliveries WHERE queued_at >= :begin GROUP BY destination ORDER BY queued DESC, destination LIMIT :rows"""
_DELAYS: Final = """
    SELECT size(filter(:edges, edge -> edge <= seconds)) AS place, count(*) AS n
    FROM alert_deliveries WHERE queued_at >= :begin AND outcome = 'delivered' GROUP BY ALL ORDER BY ALL"""
