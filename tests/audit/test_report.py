"""`audit report`: its figures are those of the log, one failover is one, and it stays small. See test_report_page.py for how it looks."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from html import unescape
from pathlib import Path
from shlex import split

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.audit_log import audit_folder
from sidecar.audit.log.tables import EVENT_DATE, partition_column
from sidecar.audit.report.report import command_for_all, listed, notices, render, tiles, write_report
from sidecar.audit.report.report_data import _EPISODES, EDGES, LIST_ROWS, ReportFigures, _query
from sidecar.audit.report.report_page import cards
from sidecar.audit.report.report_period import _CLUSTERS, ReportRequest, find_period
from sidecar.audit.report.report_text import DASH, bounds, minute, parts, percent, planned, second, seconds, short
from sidecar.cli.audit import audit as command
from tests.audit.conftest import QuarterRead
from tests.audit.histories import at
from tests.audit.quarter import ALONE, CLUSTERS, DAY, HOSTILE, NOTHING, Cluster, Failover, Truth, days, happened, truth
from tests.audit.spooling import NOON, seal, transition

pytestmark = pytest.mark.spark


def table(findings: ReportFigures, caption: str) -> list[tuple[str, ...]]:
    """The rows of the table whose caption begins like that."""
    (rows,) = (each.rows for card in cards(findings) for each in card.tables if each.caption.startswith(caption))
    return [tuple(row) for row in rows]


def together(truths: Iterable[Truth]) -> Truth:
    """Their sum."""
    return sum(truths, NOTHING)


def shares(of: Truth) -> tuple[str, str]:
    """Availability and the unobserved part."""
    observed = of.led + of.vacant
    return percent(of.led, observed), percent(of.unobserved, observed + of.unobserved)


def counts(failovers: Sequence[Failover]) -> tuple[str, str, str]:
    """Planned, not planned, not known."""
    number_of = Counter(failover.meant for failover in failovers)
    return str(number_of[True]), str(number_of[False]), str(number_of[None])


def test_the_figures_at_the_top_are_those_of_the_log(quarter_found: ReportFigures) -> None:
    """Failovers, the time without a leader, availability, alerts; and what is not over is said first."""
    all_of_it = [failover for _, failover in happened()]
    vacant = sorted(each.vacant for each in all_of_it)
    downtimes = [each.down for each in all_of_it if each.down]
    least, most = (sum(values) for values in zip(*downtimes, strict=True))
    assert len(downtimes) == len(all_of_it) - 1
    assert most > least
    sums = together(truth(cluster, day) for cluster in CLUSTERS for day in days())
    of, longest = max(happened(), key=lambda pair: pair[1].vacant)
    shown = {tile.name: (tile.value, tile.note) for tile in tiles(quarter_found)}
    meant, not_meant, unknown = counts(all_of_it)
    assert shown["Failovers"] == ("11", f"{meant} planned, {not_meant} not planned, {unknown} not known")
    assert shown["No published leader"] == (
        seconds(sum(vacant)),
        f"all failovers together; median {seconds(vacant[5])}, longest {seconds(longest.vacant)} ({of.id}, {minute(at(longest.began))})",
    )
    assert shown["No working leader"][0] == bounds(least, None)
    assert shown["No working leader"][1].endswith("no upper bound is known of 1")
    assert (shown["Availability"][0], shown["Unobserved"][0]) == shares(sums)
    assert shown["Alerts delivered"] == ("11 of 12", "1 given up")
    assert notices(quarter_found) == [
        "clicks has no leader at the end of this period: dispatcher, resource_manager, rest_server, 2 jobs, since 2025-11-30 20:00.",
        "1 failover lost a job, or the state of one.",
        "1 more failover began and is in no figure of failovers: not over when the period ended, or the end was not recorded.",
    ]


def test_one_failover_is_one_row(quarter_found: ReportFigures) -> None:
    """Newest first, whatever the number of components and jobs; with an operator's note. Who returned is no failover."""
    rows = [listed(row) for row in quarter_found.latest]
    expected = [
        (second(at(each.began)), short(cluster.id), planned(each.meant, noted=each.note is not None), each.note)
        for cluster, each in reversed(happened())
    ]
    assert [(row.at, row.cluster, row.planned, row.note.removesuffix(" (Ada)") or None) for row in rows] == expected
    assert [(row.cause, row.confidence, row.vacant, row.down) for row in rows] == [
        (each.cause, "medium", bounds(each.vacant, each.vacant), bounds(*(each.down or (None, None))))
        for _, each in reversed(happened())
    ]
    (latest,) = (row for row in rows if row.at == "2025-11-23 17:30:00")
    assert (latest.moved, latest.parts) == ("jm-6:6123 → jm-8:6123", "3 components; 14 of 14 jobs")
    assert command_for_all(quarter_found) == ""
    outcomes = [
        f"death: {each.death}, recovery: {each.verdict}" if each.death else "" for _, each in reversed(happened())
    ]
    assert [row.outcome for row in rows] == outcomes


def test_what_nobody_knows_is_no_reason_and_no_recovery(quarter_found: ReportFigures) -> None:
    """Each failover counts once, by the observer that knows most; what nobody knows has rows of its own."""
    failovers = [each for _, each in happened()]

    def median(reason: str | None) -> str:
        bounds = sorted(failover.down[1] for failover in failovers if failover.death == reason and failover.down)
        return seconds(bounds[(len(bounds) - 1) // 2])

    deaths = Counter(failover.death for failover in failovers)
    assert (deaths["oom_killed"], deaths["unknown"], deaths[None]) == (2, 1, 6)
    assert table(quarter_found, "Failovers by the reason of the death") == [
        *((reason, str(deaths[reason]), median(reason)) for reason in ("oom_killed", "drained", "killed", "unknown")),
        ("not_observed", "6", median(None)),
    ]
    assert table(quarter_found, "Failovers by what came back") == [
        *(("recovered", "2"), ("degraded", "1"), ("lost", "1"), ("unproven", "1"), ("not_assessed", "6"))
    ]


def test_the_slowest_recovery_shows_where_the_time_went(quarter_found: ReportFigures) -> None:
    """From the end of the process to the first checkpoint."""
    cluster, slowest = max(happened(), key=lambda pair: pair[1].total or 0)
    steps = (5, 5 + slowest.vacant, 5 + slowest.vacant, 7 + slowest.vacant, slowest.total)
    rows = table(quarter_found, "Steps of the slowest recovery")
    assert [after for _, after in rows] == [seconds(step) for step in steps]
    (text,) = (card.text for card in cards(quarter_found) if card.title == "Slowest recovery")
    assert (
        text
        == f"{cluster.id}, {minute(at(slowest.began))}: {slowest.cause}, recovery degraded. Times since the end of the process."
    )


def test_the_latest_failovers_without_a_note_are_listed(quarter_found: ReportFigures) -> None:
    """With the id that `annotate` takes; how many there are is said above."""
    shown = [listed(row) for row in quarter_found.unreviewed]
    expected = [(second(at(each.began)), short(of.id)) for of, each in reversed(happened()) if each.note is None]
    assert [(row.at, row.cluster) for row in shown] == expected
    assert quarter_found.total.unreviewed == len(expected) == 10
    assert f"<code>{shown[0].id[:8]}</code>" in render(quarter_found)


def test_a_log_without_deaths_and_recoveries_has_no_pictures_of_them(quarter_found: ReportFigures) -> None:
    """That of an older sidecar: nothing was observed, which is no figure."""
    (nobody,) = (row for reason, row in quarter_found.by_death.items() if reason == "not_observed")
    older = replace(quarter_found, by_death={"not_observed": nobody}, by_verdict={"not_assessed": nobody}, slowest=None)
    assert [card.title for card in cards(older)] == [card.title for card in cards(quarter_found)][:6]


def test_what_moved_is_said_in_words(quarter_found: ReportFigures) -> None:
    """Of a smaller failover the components are named; jobs without a leader and chains are counted."""
    row = quarter_found.latest[0].asDict()
    small = row | {"components": ["dispatcher", "job"], "jobs_missing": 2, "failovers": 3}
    assert parts(type(quarter_found.latest[0])(**small)) == (
        "dispatcher; 3 of 3 jobs; 2 jobs without a leader at its end; 3 leaders followed each other"
    )


def test_the_tables_are_those_of_the_log(quarter_found: ReportFigures) -> None:
    """Each picture has one, and each number in it is computed from the lists of the test too."""
    by_day: dict[date, list[Failover]] = {}
    for _, failover in happened():
        by_day.setdefault((NOON + timedelta(seconds=failover.over + 5)).date(), []).append(failover)
    assert table(quarter_found, "Failovers per day") == [
        (f"{day}", *counts(failovers)) for day, failovers in sorted(by_day.items())
    ]

    causes = Counter(failover.cause for _, failover in happened())
    assert table(quarter_found, "Failovers by cause") == [
        (
            cause,
            str(n),
            str(sum(failover.cause == cause and failover.meant is True for _, failover in happened())),
            seconds(sum(failover.vacant for _, failover in happened() if failover.cause == cause)),
        )
        for cause, n in sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    ]
    assert [card.text for card in cards(quarter_found) if card.title == "Causes"] == [
        "As above, planned or not. 1 episode without a change of leader: 1 rewritten_by_flink."
    ]

    for place, edge in ((0, 0.0), *enumerate(EDGES, start=1)):
        top = EDGES[place] if place < len(EDGES) else float("inf")
        published = sum(edge <= failover.vacant < top for _, failover in happened())
        working = sum(
            bool(failover.down) and edge <= failover.down[1] < top for _, failover in happened() if failover.down
        )
        assert (quarter_found.vacancies.get(place, 0), quarter_found.downtimes.get(place, 0)) == (published, working)
    assert "Not known: no working leader of 1." in next(
        card.text for card in cards(quarter_found) if "per failover" in card.title
    )
    assert ("30 s to 1 min", "1", "2") in table(quarter_found, "Failovers by the time")

    assert table(quarter_found, "Availability per day") == [
        (f"{day}", shares(sums)[0], seconds(sums.vacant), shares(sums)[1])
        for day in days()
        if (sums := together(truth(cluster, day) for cluster in CLUSTERS)) != NOTHING
    ]
    delays = sorted(
        failover.vacant / 4
        for cluster in CLUSTERS
        for failover in cluster.failovers
        if failover.recorded and failover.vacant != 3.5
    )
    assert table(quarter_found, "Alerts by destination") == [
        ("ops#0", "12", "11", "1", "0", "1", seconds(delays[5]), seconds(delays[-1]))
    ]
    assert sum(quarter_found.delays.values()) == 11


def test_each_cluster_has_its_figures(quarter_found: ReportFigures) -> None:
    """One row per cluster, that without a leader for longest first; and the longest unobserved times."""
    sums = {cluster.id: together(truth(cluster, day) for day in days()) for cluster in CLUSTERS}
    expected = []
    for cluster in sorted(CLUSTERS, key=lambda cluster: -sums[cluster.id].vacant):
        own = [each for of, each in happened() if of is cluster]
        expected.append((
            short(cluster.id),
            str(len(own)),
            counts(own)[0],
            seconds(sum(each.vacant for each in own)) if own else DASH,
            str(changes(cluster)),
            *shares(sums[cluster.id]),
        ))  # fmt: skip
    assert table(quarter_found, "Clusters") == expected
    blind = [(cluster.id, stretch) for cluster in CLUSTERS for stretch in cluster.blind]
    assert table(quarter_found, "Longest unobserved times") == [
        (name, "all", second(at(began)), second(at(ended)), seconds(ended - began))
        for name, (began, ended) in sorted(blind, key=lambda item: item[1][0] - item[1][1])
    ]


def changes(cluster: Cluster) -> int:
    """How often a component or job of it got another leader."""
    moves = sum(failover.leaders > 0 for failover in cluster.failovers)
    return moves * len(cluster.names()) + (cluster.id == ALONE[0])


def test_a_week_agrees_with_the_weekly_report(quarter_session: SparkSession, quarter_read: QuarterRead) -> None:
    """Of the clusters asked for: availability and changes of leader are those of the view; a failover is an episode, and words say so."""
    findings = quarter_read(
        ReportRequest(first=date(2025, 11, 24), last=date(2025, 11, 30), clusters=("payments", "clicks"))
    )
    week = quarter_session.sql(
        "SELECT * FROM weekly_report WHERE week = '2025-11-24' AND cluster_id IN ('payments', 'clicks')"
    )
    rows = {row.cluster_id: row for row in week.collect()}
    assert {name: row.n for name, row in findings.changes.items()} == {
        name: row.leader_changes for name, row in rows.items()
    }
    for name, sums in findings.available_by_cluster.items():
        assert sums.led / (sums.led + sums.vacant) == pytest.approx(rows[name].availability, abs=1e-12)
    monday = 2.5 * DAY  # after noon of 2025-11-21
    own = [cluster.id for cluster, _ in happened(monday, monday + 7 * DAY) if cluster.id in rows]
    assert (findings.total.n, own) == (sum(row.failovers for row in rows.values()), ["payments"]) == (1, ["payments"])
    page = render(findings)
    assert "2025-11-24 00:00</time> to <time>2025-11-30 23:59</time> UTC · <bdi>clicks, payments" in page
    assert "Within this period, 12 components and jobs changed their leader, 1 of them outside of any failover;" in page
    assert [*findings.marks] == ["clicks", "payments"]


@pytest.mark.parametrize(
    ("wanted", "begin", "end"),
    [
        (ReportRequest(), "2025-09-02 00:00", "2025-12-01 00:00"),
        (ReportRequest(since=timedelta(hours=12)), "2025-11-30 00:00", "2025-12-01 00:00"),
        (ReportRequest(last=date(2025, 10, 1)), "2025-09-02 00:00", "2025-10-01 23:59"),
        (ReportRequest(first=date(2025, 11, 30), last=date(2026, 1, 31)), "2025-11-30 00:00", "2025-12-01 00:00"),
    ],
)
def test_a_period_is_whole_days(
    quarter_session: SparkSession, quarter_log: Path, wanted: ReportRequest, begin: str, end: str
) -> None:
    """UTC, the last one included; at most what is recorded."""
    period = find_period(quarter_session, audit_folder(quarter_session, str(quarter_log), "read"), wanted)
    assert (minute(period.begin), minute(period.end)) == (begin, end)
    assert [*period.clusters] == sorted(cluster.id for cluster in CLUSTERS)


def test_only_the_partitions_of_the_period_are_read(quarter_session: SparkSession, quarter_log: Path) -> None:
    """Each scan of a table has a condition on its partitions; deaths and recoveries are few."""
    folder = audit_folder(quarter_session, str(quarter_log), "read")
    period = find_period(quarter_session, folder, ReportRequest(last=date(2025, 10, 1)))
    days = {"first": period.begin.date(), "last": period.end.date()}
    assert scans(quarter_session.sql(_CLUSTERS, args=days)) == 3
    read = partitions(
        _query(quarter_session, period, _EPISODES)
    )  # white box: the figures of failovers are made of this
    by_dates = [table for table, conditions in read if by_date(conditions)]
    assert sorted(by_dates) == ["annotations", "episodes", "episodes"]
    assert sorted(table for table, conditions in read if not by_date(conditions)) == ["deaths", "recoveries"]


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT * FROM alert_deliveries WHERE event_date >= '2025-11-24'", {"notifications"}),
        (
            "SELECT failovers, leader_changes FROM weekly_report WHERE week >= '2025-11-24'",
            {"episodes", "notifications"},
        ),
        ("SELECT changed_at, episode_id FROM leader_changes WHERE event_date >= '2025-11-24'", set()),
    ],
)
def test_a_condition_on_dates_reaches_the_partitions(
    quarter_session: SparkSession, query: str, tables: set[str]
) -> None:
    """Of notifications; and the episodes of all dates are read only for causes. Leadership is that of test_materialized.py."""
    read = partitions(quarter_session.sql(query))
    assert {table for table, _ in read if table not in {"transitions", "coverage"}} == tables
    assert [found for found in read if found[0] in tables and not by_date(found[1])] == []


def scans(query: DataFrame) -> int:
    """How many tables it reads; all of them by dates."""
    read = partitions(query)
    assert all(by_date(conditions) for _, conditions in read), read
    return len(read)


def partitions(query: DataFrame) -> list[tuple[str, str]]:
    """The tables that it reads, and the conditions on the folders of each; of those by month on what is in the files."""
    query.sparkSession.conf.set("spark.sql.maxMetadataStringLength", 1000)
    plan = str(query._jdf.queryExecution().sparkPlan())  # the plan is not public
    scan = r"FileScan .*?DataFilters: \[(.*?)\], Format: .*?/(\w+)\], PartitionFilters: \[(.*?)\], PushedFilters"
    found = re.findall(scan, plan)
    return [
        (table, on_folders if partition_column(table) == EVENT_DATE else on_rows)
        for on_rows, table, on_folders in found
    ]


def by_date(conditions: str) -> bool:
    """Whether they are about dates."""
    return re.search(r"event_date#\d+L?(, WEEK\))? [<>]=", conditions) is not None


@pytest.fixture(scope="module")
def many(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit log of a hundred clusters with a hundred failovers each, in a week."""
    audit = tmp_path_factory.mktemp("many") / "audit"
    begin = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
    episodes = spark.range(10_000).selectExpr(
        "uuid() AS id", "concat('cluster-', id % 100) AS cluster_id", "'unknown' AS cause", "'high' AS confidence",
        f"timestamp_seconds({begin} + id * 60) AS opened_at", f"timestamp_seconds({begin} + id * 60 + 5) AS closed_at",
        f"timestamp_seconds({begin} + id * 60 + 9) AS observed_at", "array('dispatcher') AS components", "0L AS jobs_total",
        "0.5D AS vacant_seconds", "'pekko.tcp://flink@jm-a:6123/user' AS before_address", "1L AS failovers",
        "'pekko.tcp://flink@jm-b:6123/user' AS after_address",
    )  # fmt: skip
    episodes = episodes.withColumn("episode_id", episodes["id"])
    coverage = spark.range(7 * 100).selectExpr(
        "uuid() AS id", "concat('cluster-', id % 100) AS cluster_id", "'seeing' AS state", "'jm-0' AS observer",
        f"timestamp_seconds({begin} + id DIV 100 * 86400) AS began_at",
        f"timestamp_seconds({begin} + (id DIV 100 + 1) * 86400 - 1) AS ended_at",
        f"timestamp_seconds({begin} + (id DIV 100 + 1) * 86400 - 1) AS observed_at",
    )  # fmt: skip
    for name, rows in (("episodes", episodes), ("coverage", coverage)):
        dated = rows.selectExpr("*", "to_date(observed_at) AS event_date", "'2026-03' AS event_month").coalesce(1)
        dated.write.partitionBy(partition_column(name)).parquet(f"{audit}/{name}")
    return audit


def test_it_stays_small_and_says_how_to_get_the_rest(spark: SparkSession, many: Path, tmp_path: Path) -> None:
    """With ten thousand failovers of a hundred clusters: a list that is cut, and the command that prints all of it."""
    (tmp_path / "report.html").write_text("the last one")
    write_report(spark, str(many), tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    page = (tmp_path / "report.html").read_text()
    assert len(page) < 300_000
    assert page.count('<tr role="row">') == LIST_ROWS + 1
    assert "The latest 100 of 10,000, newest first." in page
    assert "Drawn: the 8 that were without a leader for longest, of 100." in page
    (line,) = re.findall(r"<code>(flink-ha-sidecar audit sql .*?)</code>", page, re.DOTALL)
    words = split(unescape(line))
    assert words[:-1] == ["flink-ha-sidecar", "audit", "sql", "--audit", "URL", "--output", "csv"]
    assert sum(1 for _ in run_sql(spark, str(many), words[-1]).rows) == 10_000


def test_a_time_without_a_failover_is_reported(spark: SparkSession, spool: Path, audit: Path, tmp_path: Path) -> None:
    """First elections alone: no episode, and every figure of failovers is 0 or a dash."""
    seal(spool, "jm-0", 1, [transition(number, NOON + timedelta(seconds=number)) for number in range(3)])
    ingest(spark, str(spool), str(audit))
    write_report(spark, str(audit), tmp_path / "report.html")
    assert "No failover" in (tmp_path / "report.html").read_text()


def test_the_command_for_the_rest_names_the_clusters(
    spark: SparkSession, quarter_log: Path, quarter_found: ReportFigures
) -> None:
    """Whatever their names are: the query is one word of a shell, and Spark reads it."""
    period = replace(quarter_found.period, clusters={HOSTILE: None}, chosen=True)
    query = split(command_for_all(replace(quarter_found, period=period, latest=())))[-1]
    assert [row[1] for row in run_sql(spark, str(quarter_log), query.replace("*", "id, cluster_id", 1)).rows] == [
        HOSTILE
    ]


def test_what_cannot_be_reported_is_one_line(
    spark: SparkSession, spool: Path, audit: Path, quarter_log: Path, tmp_path: Path
) -> None:
    """No log, nothing in it, no such cluster or time, nowhere to write to: nothing is left behind."""
    seal(spool, "jm-0", 1, lines=[b"garbage"])
    ingest(spark, str(spool), str(audit))
    before = sorted(path.name for path in tmp_path.iterdir())
    for log, file, wanted, problem in (
        (tmp_path / "nowhere", "r.html", ReportRequest(), r"^cannot make a report on .*: there is no such folder$"),
        (audit, "r.html", ReportRequest(), r"^cannot make a report on .*: nothing is recorded in it yet$"),
        (
            quarter_log,
            "r.html",
            ReportRequest(first=date(2026, 5, 1)),
            r"^cannot make a report on .*: nothing is recorded from 2026-05-01 to 2025-12-01$",
        ),
        (
            quarter_log,
            "r.html",
            ReportRequest(clusters=("order",)),
            r"^cannot .*: cluster 'order' is not recorded from 2025-09-02 to 2025-12-01; recorded: .*orders",
        ),
        (audit, "nowhere/r.html", ReportRequest(), r"^cannot write the report .*: there is no such folder$"),
    ):
        with pytest.raises(AuditError, match=problem):
            write_report(spark, str(log), tmp_path / file, wanted)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--since", "30"], "is not a duration"),
        (["--since", "0"], "no time at all"),
        (["--since", "2000d"], "longer than"),
        (["--from", "2026-13-01"], "does not match the format"),
        (["--from", "2026-02-01", "--to", "2026-01-31"], "--from is later than --to"),
        (["--from", "2026-02-01", "--since", "1d"], "give either --since or --from"),
    ],
)
def test_a_wrong_period_is_wrong_usage(options: list[str], problem: str) -> None:
    """Said before Spark starts."""
    result = CliRunner().invoke(command, ["report", "--audit", "x", "--html", "y.html", *options])
    assert result.exit_code == 2
    assert problem in result.output


def test_a_duration_reads_well() -> None:
    """Two units at most."""
    expected = {
        0: "0 s",
        0.0042: "4 ms",
        1.5: "1.5 s",
        59.99: "60 s",
        125: "2 min 5 s",
        12000: "3 h 20 min",
        187200: "2 d 4 h",
    }
    assert {value: seconds(value) for value in expected} == expected
    assert seconds(None) == "\N{EN DASH}"
    assert [bounds(1.0, 3.0), bounds(None, None), bounds(8.84, None), bounds(100, 1000)] == [
        "1.0 to 3.0 s",
        "not known",
        "at least 8.8 s",
        "1 min 40 s to 16 min 40 s",
    ]
