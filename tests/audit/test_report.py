"""`audit report`: one file that fetches nothing, runs nothing but its own, fits a phone and paper, and stays small."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sidecar.audit import AuditError, open_audit
from sidecar.audit.ingest import ingest
from sidecar.audit.report import write_report
from sidecar.audit.report_data import INTERVALS, LANES, find
from sidecar.audit.report_page import pictures, seconds, tiles
from sidecar.cli.audit import audit as command
from sidecar.core.records import AnyRecord, record_id
from tests.audit.histories import A, History
from tests.audit.spooling import seal, session_id
from tests.kit.browser import Page, chromium

pytestmark = pytest.mark.spark

HOSTILE = (
    "</script><script>hostile=1</script><img src=http://127.0.0.1:9/x onerror=hostile=2>"
    "<a href='javascript:hostile=3'>'\"&amp;{{7*7}}"
)
HOSTILE_ADDRESS = f"pekko.tcp://flink@<b onmouseover=hostile=4>%{{x}}{HOSTILE}:6123/user"
DAY = 86400.0
DOWN = {"downtime_seconds_at_least": 3.0, "downtime_seconds_at_most": 9.0}


def records() -> list[AnyRecord]:
    """A cluster with a hostile name and 100 failovers, blind for two days of thirty, and 30 jobs that nothing happens to."""
    history = History("hostile")
    history.found(0, A, after_address=HOSTILE_ADDRESS)
    before = A
    for number in range(100):
        after = session_id("bcde"[number % 4])[:-2] + f"{number:02}"
        begin = (number + 1) * 0.25 * DAY
        history.revoked(begin, before).granted(begin + 3, after, before, 3.0, after_address=HOSTILE_ADDRESS, **DOWN)
        before = after
    for number in range(30):
        history.granted(0, A, None, None, component="job", job_id=f"{number:032x}")
    history.covered(0, 10 * DAY).covered(10 * DAY, 12 * DAY, "blind").covered(12 * DAY, 28 * DAY)
    history.notified(DAY, "queued", destination=HOSTILE).notified(
        DAY + 2, "delivered", 1, queued=DAY, destination=HOSTILE
    )
    return [replace(record, cluster_id=HOSTILE, id=record_id("hostile", record.id)) for record in history.records]


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on all of that."""
    folder = tmp_path_factory.mktemp("report")
    seal(folder / "spool", "jm-0", 1, records())
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    (folder / "report.html").write_text("the last one")
    write_report(spark, str(folder / "audit"), folder / "report.html")
    assert sorted(path.name for path in folder.iterdir()) == ["audit", "report.html", "spool"]
    return folder / "report.html"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("width", [1280, 360])
def test_it_fits_the_screen_and_asks_nobody(report: Path, page: Page, width: int) -> None:
    """All pictures are drawn without a request, nothing scrolls to the side, and nothing of what a cluster wrote is executed."""
    page.requested.clear()
    page.open(report, width)
    assert page.value(
        "[...document.querySelectorAll('.chart')].map(c => c.id + ' ' + c.querySelectorAll('.main-svg').length).join()"
    ) == ("leadership 3,failovers 3,vacancies 3,availability 3,delays 3")
    assert page.value("innerWidth") == width
    assert page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert (
        page.value(
            "[...document.querySelectorAll('.chart svg')].every(s => s.getBoundingClientRect().right <= innerWidth)"
        )
        is True
    )
    assert page.screenshot().startswith(b"\x89PNG")
    assert [url for url in page.requested if url != report.as_uri()] == []
    assert page.complaints == []
    assert page.value("typeof hostile") == "undefined"
    assert page.value("document.querySelectorAll('img, a, main b').length") == 0
    assert page.dialogs == 0


def test_it_can_be_printed(report: Path, page: Page) -> None:
    """On paper, with its pictures."""
    page.open(report, 1280)
    assert page.printed().startswith(b"%PDF")
    assert page.complaints == []


def test_a_script_that_got_into_the_page_would_not_run(report: Path, page: Page, tmp_path: Path) -> None:
    """Escaping is one wall, and the page's own policy is another."""
    broken = tmp_path / "broken.html"
    broken.write_text(
        report.read_text().replace("<main>", "<main><script>hostile = 5</script><img src=x onerror='hostile = 6'>")
    )
    page.complaints.clear()
    page.open(broken, 1280)
    assert page.value("typeof hostile") == "undefined"
    assert any("Content Security Policy" in complaint for complaint in page.complaints)
    page.complaints.clear()


def test_it_stays_small_and_says_what_it_left_out(report: Path) -> None:
    """However many leaderships and terms there are; and it names no other file or server."""
    text = report.read_text()
    assert len(text) < 3_000_000
    figures = json.loads(re.findall(r'id="figures">(.*?)</script>', text, re.DOTALL)[0])
    lanes = figures["leadership"]["data"]
    assert len({y for trace in lanes[:-1] for y in trace["y"]}) == LANES
    assert (
        max(sum(trace["y"].count(0) for trace in lanes[:6]), sum(len(trace["y"]) for trace in lanes[:6]))
        <= LANES * INTERVALS
    )
    assert f"Shown: the {LANES} leaderships with the most changes, of 31." in text
    assert f"Of each, the {INTERVALS} longest intervals and the {INTERVALS} latest failovers: " in text
    visible = re.sub(r'<script type="text/plain" id="library">.*?</script>', "", text, flags=re.DOTALL)
    assert not re.findall(
        r"(?:src|href|action)\s*=|url\(|@import", re.sub(r"&[#\w]+;|\\u00\w\w", "", _untrusted_out(visible))
    )


def _untrusted_out(text: str) -> str:
    """Without the text that came from the cluster: it is escaped, and names what it likes."""
    return re.sub(r"(?:&lt;|\\u0026lt;)[^<]*", "", text)


def test_what_it_says_is_what_was(report: Path, page: Page) -> None:
    """Times are marked as UTC; unobserved time is shown beside availability, and never in it."""
    page.open(report, 1280)
    tiles = page.value(
        "[...document.querySelectorAll('.tile')].map(t => [...t.children].map(c => c.textContent).join(' | ')).join('\\n')"
    )
    assert tiles.splitlines()[1:] == [
        "Unobserved | 7.1428 % | of all time; not counted as up",
        "Failovers | 100 | one for each component that failed over",
        "No published leader | 3 s | median of a failover; 95 of 100: at most 3 s; the longest: 3 s",
        "No working leader | 3 s to 9 s | the longest failover",
        "Alerts delivered | 1 of 1 | 0 given up",
    ]
    assert "2025-11-21 12:00 to 2025-12-19 12:00 UTC" in page.value("document.querySelector('header').innerText")
    assert "2 d" in page.value("document.querySelectorAll('.card')[4].innerText")


def test_what_was_not_seen_is_said_in_each_place_alike(spark: SparkSession, spool: Path, audit: Path) -> None:
    """Share and stretches agree: blind earlier on the first day and just now, one component unreadable. Later time is not known."""
    history = History("default").found(0, A).happened(300, "OBSCURED", None, A, view="CONNECTED").found(360, A, A)
    history.covered(0, 60).covered(60, 120, "blind").covered(120, 5400).covered(5400, 5420, "blind")
    history.happened(9000, "CHANGED", session_id("b"), A)
    seal(spool, "jm-0", 1, history.records)
    ingest(spark, str(spool), str(audit))
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    open_audit(session, str(audit))
    findings = find(session, timedelta(seconds=3600))
    assert findings
    (share,) = (tile.value for tile in tiles(findings) if tile.name == "Unobserved")
    (picture,) = (picture for picture in pictures(findings) if picture.id == "unobserved")
    assert picture.table
    assert share == "2.583 %"  # 140 s of 5420
    assert [(row[1], row[4]) for row in picture.table.rows] == [
        ("all", "1 min"),
        ("dispatcher", "1 min"),
        ("all", "20 s"),
    ]
    assert "without a gap" not in picture.text
    assert "the earliest: 2025-11-21 13:30:20 UTC" in picture.text


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


def test_what_cannot_be_reported_is_one_line(spark: SparkSession, spool: Path, audit: Path, tmp_path: Path) -> None:
    """No log, nothing in it, nowhere to write to: nothing is left behind."""
    seal(spool, "jm-0", 1, lines=[b"garbage"])
    ingest(spark, str(spool), str(audit))
    (tmp_path / "folder").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    for log, file, problem in (
        (tmp_path / "nowhere", "report.html", "^cannot open the audit log .*: there is no such folder$"),
        (audit, "report.html", "^cannot make a report on .*: nothing is recorded in it yet$"),
        (audit, "nowhere/report.html", "^cannot write the report .*: there is no such folder$"),
    ):
        with pytest.raises(AuditError, match=problem):
            write_report(spark, str(log), tmp_path / file)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("since", "problem"), [("30", "is not a duration"), ("0", "no time at all"), ("2000d", "longer than")]
)
def test_a_wrong_period_is_wrong_usage(since: str, problem: str) -> None:
    """Said before Spark starts."""
    result = CliRunner().invoke(command, ["report", "--audit", "x", "--html", "y.html", "--since", since])
    assert result.exit_code == 2
    assert problem in result.output
