"""What a report covers: whole UTC days, and the clusters that are recorded in them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from msgspec import Struct
from pyspark.sql import SparkSession

from sidecar.audit.log.audit_log import periods_of
from sidecar.audit.log.storage import Storage
from sidecar.audit.spark.spark_session import collected
from sidecar.core.counted import listed

DEFAULT_SINCE: Final = timedelta(days=90)
_LONGEST_BARS: Final = 105
_BAR_DAYS: Final = (1, 7, 28, 364)
_NAMED: Final = 10
"""The number of clusters that an error names."""


class ReportRequest(Struct, frozen=True):
    """What the report is asked to cover."""

    since: timedelta = DEFAULT_SINCE
    """Before the last day, if there is no `first`; begun days are whole."""
    first: date | None = None
    last: date | None = None
    """None: the day of the last record."""
    clusters: Sequence[str] = ()
    """None given: all."""


class ReportPeriod(Struct, frozen=True):
    """Whole UTC days. All figures of a report are about them."""

    begin: datetime
    end: datetime
    """The last instant that counts: the end of the last day, or the last record."""
    clusters: Mapping[str, datetime | None]
    """The end of each cluster's coverage records, by cluster id; None: it has none."""
    chosen: bool
    """Not all clusters were asked for."""

    @property
    def days(self) -> int:
        """How many days it touches."""
        return (self.end.date() - self.begin.date()).days + 1

    @property
    def bar_days(self) -> int:
        """The days of one bar of a chart, so that a chart has about a hundred bars at most; for years, multiples of a year."""
        fits = (days for days in _BAR_DAYS if self.days <= days * _LONGEST_BARS)
        return next(fits, _BAR_DAYS[-1] * (self.days // (_BAR_DAYS[-1] * _LONGEST_BARS) + 1))

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters of the report's queries. `first` and `last` are the dates whose partitions have the records."""
        return {
            "begin": self.begin,
            "end": self.end,
            "first": self.begin.date(),
            "last": self.end.date(),
            "clusters": list(self.clusters),
        }


def find_period(session: SparkSession, folder: Storage, wanted: ReportRequest) -> ReportPeriod:
    """The period of the report. The views of the audit log in `folder` must be registered in the session.

    Raises LookupError when nothing is recorded in it, or not of a cluster that is asked for.
    """
    recorded = [dates.first for dates in periods_of(folder, "transitions").values()]
    [observed] = collected(session.sql("SELECT min(event_date) AS first, max(event_date) AS last FROM coverage"))
    recorded += [day for day in observed if day]
    if not recorded:
        raise LookupError("nothing is recorded in it yet")
    last = min(wanted.last or max(recorded), max(recorded))
    days = -(-wanted.since // timedelta(days=1))
    first = max(wanted.first or last - timedelta(days=days), min(recorded))
    rows = collected(session.sql(_CLUSTERS, args={"first": first, "last": last}))
    if not rows:
        raise LookupError(f"nothing is recorded from {wanted.first or first} to {wanted.last or last}")
    ends = {row.cluster_id: row.known_until and utc(row.known_until) for row in rows}
    if missing := [name for name in wanted.clusters if name not in ends]:
        names = listed([*ends], _NAMED)
        raise LookupError(f"cluster {missing[0]!r} is not recorded from {first} to {last}; recorded: {names}")
    midnight = datetime.combine(last + timedelta(days=1), time(), UTC)
    return ReportPeriod(
        begin=datetime.combine(first, time(), UTC),
        end=midnight - _INSTANT if last < max(recorded) else max(utc(row.recorded_until) for row in rows),
        clusters={name: until for name, until in ends.items() if name in (wanted.clusters or ends)},
        chosen=bool(wanted.clusters),
    )


def utc(instant: datetime) -> datetime:
    """An instant of Spark (naive, in the time zone of this machine) in UTC."""
    return instant.astimezone(UTC)


_INSTANT: Final = timedelta(microseconds=1)
_CLUSTERS: Final = """
    SELECT cluster_id, max(known_until) AS known_until, max(at) AS recorded_until FROM (
      SELECT cluster_id, observed_at AS at, ended_at AS known_until
      FROM coverage
      -- The record of a day's last hour is the next day's.
      WHERE event_date BETWEEN :first AND date_add(:last, 1) AND date(began_at) <= :last AND began_at < ended_at
      UNION ALL SELECT cluster_id, observed_at, NULL FROM transitions WHERE event_date BETWEEN :first AND :last
      UNION ALL SELECT cluster_id, observed_at, NULL FROM notifications WHERE event_date BETWEEN :first AND :last
    )
    GROUP BY cluster_id ORDER BY cluster_id"""
