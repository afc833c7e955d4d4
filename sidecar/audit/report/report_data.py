"""The report's figures: a bounded number, computed in Spark, however long the log is.

Every query is bounded by the period, so that Spark reads only its partitions; but a notification without an outcome may be of any date, and
so may a death and a recovery: they are few.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from pyspark.sql import DataFrame, Row, SparkSession

from sidecar.audit.report.report_period import ReportPeriod, utc
from sidecar.audit.report.report_text import percent
from sidecar.audit.spark.spark_session import collected

VIEWS: Final = frozenset(
    {
        *("transitions", "coverage", "notifications", "episodes", "annotations", "leader_changes", "recovery_time"),
        *("leadership", "unobserved", "availability", "leadership_slo", "alert_deliveries"),
    }
)
"""What must be registered."""
LANES: Final = 8
"""The maximum number of clusters in the picture of all clusters."""
STRETCHES: Final = 50
"""The maximum number of vacancies, and of unobserved times, of one of these clusters: the longest ones. And of all others together."""
THINNEST: Final = 2000
"""A vacancy is drawn from this part of the period on."""
SLOTS: Final = 120
"""Failovers of one cluster are one mark if they are as close to each other as this part of the period."""
LIST_ROWS: Final = 100
"""The maximum number of failovers in the list."""
UNREVIEWED_ROWS: Final = 10
"""The maximum number of failovers in the list of those without a note."""
SLO_ROWS: Final = 100
"""The maximum number of clusters in the table of objectives."""
NOT_OBSERVED: Final = "not_observed"
"""No observer recorded that the process ended."""
NOT_ASSESSED: Final = "not_assessed"
"""No observer assessed whether everything came back."""
EDGES: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Limits of the histograms, in seconds."""


class Stretch(Struct, frozen=True):
    """A time without a leader, or without an observer, within the period."""

    cluster_id: str
    component: str | None
    """None: all."""
    job_id: str | None
    began: datetime
    ended: datetime
    lasts: bool
    """Not over at the end of the period."""


class Sums(Struct, frozen=True):
    """Seconds, summed over components and jobs, as in the view `availability`."""

    led: float = 0.0
    vacant: float = 0.0
    unobserved: float = 0.0

    @property
    def shares(self) -> tuple[str, str]:
        """The led part of the observed time, and the unobserved part of all time."""
        observed = self.led + self.vacant
        return percent(self.led, observed), percent(self.unobserved, observed + self.unobserved)

    @staticmethod
    def together(sums: "Iterable[Sums]") -> "Sums":
        """The sums of all."""
        parts = [*sums]
        return Sums(*(sum(getattr(part, name) for part in parts) for name in Sums.__struct_fields__))


class ReportFigures(Struct, frozen=True):
    """The figures of one period."""

    period: ReportPeriod
    total: Row
    """All failovers together."""
    by_day: Mapping[int, Row]
    """By the number of the bar's day."""
    by_cause: Mapping[str, Row]
    by_cluster: Mapping[str, Row]
    by_death: Mapping[str, Row]
    """By why the leader's process ended; NOT_OBSERVED."""
    by_verdict: Mapping[str, Row]
    """By whether everything came back; NOT_ASSESSED."""
    slowest: Row | None
    """The failover after which it took longest until all jobs ran again."""
    unreviewed: Sequence[Row]
    """The latest failovers without a note."""
    vacancies: Mapping[int | None, int]
    """The number of failovers by the place of `vacant_seconds` among EDGES. None: unknown."""
    downtimes: Mapping[int | None, int]
    """Likewise by the upper bound of the time without a working leader."""
    latest: Sequence[Row]
    ranked: Sequence[str]
    """The clusters, that without a leader for longest first, then that with the most failovers."""
    marks: Mapping[str, Sequence[Row]]
    """Failovers that are close to each other, by cluster: of the first LANES clusters."""
    changes: Mapping[str, Row]
    """Changes of leader, by cluster: the rows of the view `leader_changes`."""
    available_by_day: Mapping[int, Sums]
    available_by_cluster: Mapping[str, Sums]
    slos: Sequence[Row]
    """The clusters with an objective, those with the least of their error budget first."""
    vacant: Sequence[Stretch]
    unobserved: Sequence[Stretch]
    alerts: Mapping[str, Row]
    """By destination."""
    delays: Mapping[int, int]
    """The number of deliveries, by the place of their seconds among EDGES."""


def find(session: SparkSession, period: ReportPeriod) -> ReportFigures:
    """The figures of the period. The views must be registered in the session."""
    _query(session, period, _EPISODES).createOrReplaceTempView("report_episodes")
    session.catalog.cacheTable("report_episodes")
    try:
        return _find(session, period)
    finally:
        session.catalog.uncacheTable("report_episodes")


def _find(session: SparkSession, period: ReportPeriod) -> ReportFigures:
    def ask(query: str, **more: Any) -> list[Row]:
        return collected(_query(session, period, query, **more))

    failovers, available, alerts = ask(_FAILOVERS), ask(_AVAILABILITY), ask(_ALERTS)

    def failovers_by(of: str, column: str = "") -> dict[Any, Row]:
        return {row[column or of]: row for row in failovers if row.of == of and row.n}

    by_cluster = failovers_by("cluster", "cluster_id")
    available_by_cluster = {row.cluster_id: _sums(row) for row in available if row.day is None}

    ranked = _ranked(period.clusters, by_cluster, available_by_cluster)
    lanes = ranked[:LANES]
    marks = ask(_MARKS, lanes=lanes)
    stretches = ask(_STRETCHES, lanes=lanes)
    return ReportFigures(
        period=period,
        total=next((row for row in failovers if row.of == "all"), _NO_EPISODE),
        by_day=failovers_by("day"),
        by_cause={row.cause: row for row in failovers if row.of == "cause"},
        by_cluster=by_cluster,
        by_death=failovers_by("death"),
        by_verdict=failovers_by("verdict"),
        slowest=next(iter(ask(_SLOWEST)), None),
        unreviewed=ask(_UNREVIEWED),
        vacancies={place: row.n for place, row in failovers_by("vacant", "vacant_place").items()},
        downtimes={place: row.n for place, row in failovers_by("down", "down_place").items()},
        latest=ask(_LATEST),
        ranked=ranked,
        marks={name: [row for row in marks if row.cluster_id == name] for name in lanes},
        changes={row.cluster_id: row for row in ask(_CHANGES)},
        available_by_day={row.day: _sums(row) for row in available if row.day is not None},
        available_by_cluster=available_by_cluster,
        slos=ask(_SLOS),
        vacant=_stretches(stretches, period, vacant=True),
        unobserved=_stretches(stretches, period, vacant=False),
        alerts={row.destination: row for row in alerts if row.destination is not None},
        delays={row.place: row.delivered for row in alerts if row.destination is None and row.delivered},
    )


def _ranked(clusters: Iterable[str], by_cluster: Mapping[str, Row], available: Mapping[str, Sums]) -> list[str]:
    """Those that were longest without a leader first."""

    def interest(cluster_id: str) -> tuple[float, int, float]:
        sums, row = available.get(cluster_id, Sums()), by_cluster.get(cluster_id)
        return sums.vacant, row.n if row else 0, sums.unobserved

    return sorted(clusters, key=interest, reverse=True)


def _stretches(rows: Sequence[Row], period: ReportPeriod, *, vacant: bool) -> list[Stretch]:
    """Without the time of which no coverage is recorded yet: it is not known."""
    stretches = []
    for row in (row for row in rows if row.is_vacant == vacant):
        ended = min(utc(row.ended), period.clusters.get(row.cluster_id) or period.end)
        if (began := utc(row.began)) < ended or row.lasts:
            stretches.append(Stretch(row.cluster_id, row.component, row.job_id, began, max(began, ended), row.lasts))
    return stretches


def _sums(row: Row) -> Sums:
    return Sums(row.led, row.vacant, row.unobserved)


def _query(session: SparkSession, period: ReportPeriod, query: str, **more: Any) -> DataFrame:
    query = query.replace("{chosen}", "array_contains(:clusters, cluster_id)" if period.chosen else "true")
    values = period.arguments | more
    return session.sql(query, args={name: value for name, value in values.items() if f":{name}" in query})


def _place(seconds: str) -> str:
    edges = ", ".join(map(str, EDGES))
    return f"CASE WHEN {seconds} IS NOT NULL THEN size(filter(array({edges}), edge -> edge <= {seconds})) END"


# The conditions on dates are whole days: an episode belongs to the day on which it was recorded, right after it was over.
_EPISODES: Final = f"""
    SELECT episodes.*, failovers > 0 AND NOT coalesce(drill, false) AS is_failover, coalesce(noted_planned, planned) AS meant, note, author,
      recovery_time.* EXCEPT (episode_id), coalesce(death_reason, '{NOT_OBSERVED}') AS death,
      coalesce(recovery_verdict, '{NOT_ASSESSED}') AS verdict, datediff(event_date, :first) AS day,
      {_place("vacant_seconds")} AS vacant_place, {_place("downtime_seconds_at_most")} AS down_place
    FROM episodes LEFT JOIN (
      SELECT
        episode_id, max_by(reason, observed_at) AS note, max_by(author, observed_at) AS author, bool_or(planned) AS noted_planned
      FROM annotations WHERE event_date >= :first GROUP BY episode_id
    ) USING (episode_id)
    LEFT JOIN (SELECT * EXCEPT (cluster_id, opened_at, cause, event_date) FROM recovery_time WHERE event_date BETWEEN :first AND :last)
      AS recovery_time USING (episode_id)
    WHERE event_date BETWEEN :first AND :last AND {{chosen}}"""  # noqa: S608  our own text, here and below
_FAILOVERS: Final = """
    SELECT
      CASE
        WHEN grouping(day) = 0 THEN 'day' WHEN grouping(cause) = 0 THEN 'cause' WHEN grouping(cluster_id) = 0 THEN 'cluster'
        WHEN grouping(death) = 0 THEN 'death' WHEN grouping(verdict) = 0 THEN 'verdict'
        WHEN grouping(vacant_place) = 0 THEN 'vacant' WHEN grouping(down_place) = 0 THEN 'down' ELSE 'all'
      END AS of,
      day, cause, cluster_id, death, verdict, vacant_place, down_place,
      count_if(is_failover) AS n, count_if(failovers = 0) AS others, count_if(drill) AS drills,
      count_if(is_failover AND meant) AS planned, count_if(is_failover AND NOT meant) AS unplanned,
      count_if(is_failover AND vacant_seconds IS NULL) AS without_vacant,
      sum(vacant_seconds) FILTER (WHERE is_failover) AS vacant_total,
      approx_percentile(vacant_seconds, 0.5, 10000) FILTER (WHERE is_failover) AS vacant_median,
      max(named_struct('seconds', vacant_seconds, 'cluster_id', cluster_id, 'at', opened_at))
        FILTER (WHERE is_failover AND vacant_seconds IS NOT NULL) AS vacant_longest,
      count_if(is_failover AND downtime_seconds_at_least IS NULL) AS without_down,
      count_if(is_failover AND downtime_seconds_at_most IS NULL) AS without_down_bound,
      sum(downtime_seconds_at_least) FILTER (WHERE is_failover) AS down_total_at_least,
      sum(downtime_seconds_at_most) FILTER (WHERE is_failover) AS down_total_at_most,
      approx_percentile(downtime_seconds_at_most, 0.5, 10000) FILTER (WHERE is_failover) AS down_median_at_most,
      count_if(is_failover AND note IS NULL) AS unreviewed
    FROM report_episodes
    GROUP BY GROUPING SETS ((day), (cause), (cluster_id), (death), (verdict), (vacant_place), (down_place), ())"""
_NO_EPISODE: Final = Row(
    n=0, others=0, drills=0, planned=0, unplanned=0, without_vacant=0, vacant_total=None, vacant_median=None, vacant_longest=None,
    without_down=0, without_down_bound=0, down_total_at_least=None, down_total_at_most=None, down_median_at_most=None, unreviewed=0,
)  # fmt: skip
"""The total where there is no episode: of no rows, Spark makes no grouping set."""
_LATEST: Final = f"SELECT * FROM report_episodes WHERE is_failover ORDER BY opened_at DESC, id LIMIT {LIST_ROWS}"  # noqa: S608
_UNREVIEWED: Final = f"SELECT * FROM report_episodes WHERE is_failover AND note IS NULL ORDER BY opened_at DESC, id LIMIT {UNREVIEWED_ROWS}"  # noqa: S608
_SLOWEST: Final = "SELECT * FROM report_episodes WHERE is_failover AND total_seconds IS NOT NULL ORDER BY total_seconds DESC, id LIMIT 1"
_MARKS: Final = f"""
    SELECT
      cluster_id, count(*) AS n, count_if(meant) AS planned, count_if(NOT meant) AS unplanned, min(opened_at) AS at,
      (unix_micros(greatest(opened_at, :begin)) - unix_micros(:begin)) * {SLOTS} DIV (unix_micros(:end) - unix_micros(:begin) + 1) AS slot
    FROM report_episodes WHERE is_failover AND array_contains(:lanes, cluster_id)
    GROUP BY cluster_id, slot ORDER BY slot"""  # noqa: S608
_CHANGES: Final = """
    SELECT cluster_id, count(*) AS n, count_if(episode_id IS NULL) AS alone,
      count(DISTINCT CASE WHEN cause IS NULL THEN episode_id END) AS unrecorded
    FROM leader_changes WHERE NOT drill AND event_date BETWEEN :first AND :last AND changed_at BETWEEN :begin AND :end AND {chosen}
    GROUP BY cluster_id"""
_AVAILABILITY: Final = """
    SELECT datediff(day, :first) AS day, cluster_id,
      sum(led_seconds) AS led, sum(vacant_seconds) AS vacant, sum(unobserved_seconds) AS unobserved
    FROM availability WHERE day BETWEEN :first AND :last AND {chosen}
    GROUP BY GROUPING SETS ((day), (cluster_id))"""
_SLOS: Final = f"""
    SELECT * FROM leadership_slo WHERE objective IS NOT NULL AND {{chosen}}
    ORDER BY remaining NULLS FIRST, cluster_id LIMIT {SLO_ROWS}"""  # noqa: S608
_STRETCHES: Final = f"""
    SELECT * FROM (
      SELECT *, row_number() OVER (
        PARTITION BY is_vacant, CASE WHEN array_contains(:lanes, cluster_id) THEN cluster_id END
        ORDER BY lasts DESC, unix_micros(ended) - unix_micros(began) DESC, cluster_id, component, job_id, began
      ) AS nth
      FROM (
        SELECT is_vacant, cluster_id, component, job_id, greatest(began_at, :begin) AS began,
          least(coalesce(ended_at, :end), :end) AS ended, is_vacant AND coalesce(ended_at > :end, true) AS lasts
        FROM (
          SELECT true AS is_vacant, cluster_id, component, job_id, began_at, ended_at
          FROM leadership
          WHERE state = 'VACANT' AND (event_date >= :first OR event_date IS NULL)
            -- Shorter ones would be thinner than a line.
            AND (ended_at IS NULL OR unix_micros(ended_at) - unix_micros(began_at) > (unix_micros(:end) - unix_micros(:begin)) / {THINNEST})
          UNION ALL
          SELECT false, cluster_id, component, job_id, began_at, ended_at FROM unobserved WHERE what <> 'CHANGES'
        )
        WHERE began_at <= :end AND coalesce(ended_at, :end) >= :begin AND {{chosen}}
      )
    ) WHERE nth <= {STRETCHES} ORDER BY began, cluster_id, component, job_id"""  # noqa: S608
_ALERTS: Final = f"""
    SELECT destination, place, count_if(outcome NOT IN ('already_told', 'superseded')) AS queued,
      count_if(outcome = 'delivered') AS delivered, count_if(outcome = 'gave_up') AS gave_up,
      count_if(possible_duplicate) AS duplicates, max(attempts) AS attempts,
      approx_percentile(delivered_after, 0.5, 10000) AS median, approx_percentile(delivered_after, 0.95, 10000) AS p95
    FROM (
      SELECT *, {_place("delivered_after")} AS place
      FROM (SELECT *, CASE WHEN outcome = 'delivered' THEN seconds END AS delivered_after FROM alert_deliveries)
      WHERE
        (event_date BETWEEN :first AND :last OR event_date IS NULL) AND coalesce(ended_at, queued_at) BETWEEN :begin AND :end AND {{chosen}}
    )
    GROUP BY GROUPING SETS ((destination), (place))"""  # noqa: S608
