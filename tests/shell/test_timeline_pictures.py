"""Timelines as pictures: what they show, in bounded size."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.pods import Pod
from sidecar.core.records import AnyRecord, TransitionRecord, record_id
from sidecar.core.state import State
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.timeline import LeaderSpan, SpanState
from sidecar.journal import JournalReader
from sidecar.web import queries
from sidecar.web.queries import LastDay
from sidecar.web.timeline_picture import COLUMNS, Happening, TimelinePicture, drawn
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import Sidecar
from tests.shell.reading import Markup, read, show
from tests.shell.remembering import remember, two_failovers
from tests.shell.site import Site, captured

DAY = 24 * 3600
HELD, VACANT, BLIND, UNRECORDED = SpanState


def picture(*spans: tuple[float, SpanState, str | None], happenings: tuple[Happening, ...] = ()) -> TimelinePicture:
    """A day of one component: from which second it was in which state."""
    ends = [start for start, *_ in spans[1:]] + [DAY]
    transitions = [
        LeaderSpan(round(start * SECOND), round(end * SECOND), state, leader)
        for (start, state, leader), end in zip(spans, ends, strict=True)
    ]
    return drawn({"dispatcher": transitions}, happenings, 0, DAY * SECOND)


def test_what_is_short_is_still_seen() -> None:
    """A vacancy of two seconds is one column of the day, in words exact; the names of leaders are where there is room."""
    shown = picture((0, HELD, "jm-a"), (DAY / 2, VACANT, None), (DAY / 2 + 2, HELD, "jm-b"))
    [row] = shown.rows
    assert [(path.kind, path.d) for path in row.paths] == [
        ("led0", "M0 7h144"),
        ("vacant", "M144 7h1"),
        ("led1", "M145 7h143"),
    ]
    assert [name.text for name in row.names] == ["jm-a", "jm-b"]
    assert row.title == "dispatcher: led by jm-a, jm-b, no leader once, 2.0 s"
    assert (shown.summary, row.summary) == ("no leader once, 2.0 s", "")
    assert [(span.what, span.for_long) for span in row.text] == [
        ("jm-a", "12 h"),
        ("no leader", "2.0 s"),
        ("jm-b", "11 h 59 min"),
    ]
    assert shown.leaders == [("led0", "jm-a"), ("led1", "jm-b")]


def test_blindness_looks_unlike_a_vacancy() -> None:
    """By the class of its line, which is as thick as the style sheet says; and what is not recorded is drawn as nothing."""
    shown = picture((0, UNRECORDED, None), (DAY / 4, BLIND, None), (DAY / 2, HELD, "jm-a"))
    [row] = shown.rows
    assert [(path.kind, path.d) for path in row.paths] == [("blind", "M72 7h72"), ("led0", "M144 7h144")]
    assert shown.summary == "not seen for 6 h, no records of 6 h"


def test_marks_that_are_close_are_one() -> None:
    """It says how many, and leads to the last."""
    happenings = [Happening(n * SECOND, "episode", f"failover {n}", f"episodes/{n}") for n in (10, 20, DAY // 2)]
    marks = picture((0, HELD, "jm-a"), happenings=tuple(happenings)).marks
    assert [(mark.text, mark.link) for mark in marks] == [
        ("2 here, the last: failover 20", "episodes/20"),
        ("failover 43200", "episodes/43200"),
    ]
    assert marks[1].left == 50


def test_the_picture_shows_a_day_or_less(site: Site, tmp_path: Path) -> None:
    """Failovers three minutes apart are one mark on a day, and each has its own on an hour; the links keep the cluster that is shown."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar, many_episodes(sidecar, 480, [CLUSTER]))
    show(site, sidecar)
    for query, words in (
        ("", "The last 24 hours 1 h 6 h 24 h "),
        ("?hours=6", "The last 6 hours 1 h 6 h 24 h "),
        ("?cluster=default&hours=1", "The last hour 1 h 6 h 24 h "),
    ):
        assert words in read(site, f"/{query}")
    page = site.get("/?cluster=default&hours=1")[1]
    assert {"?cluster=default&hours=6", "?cluster=default&hours=24"} < set(Markup(page).links)
    assert "60 min ago 45 min ago 30 min ago 15 min ago now" in read(site, "/?hours=1")
    assert "6 h ago 4.5 h ago 3 h ago 1.5 h ago now" in read(site, "/?hours=6")
    assert "here, the last" in site.get("/")[1]
    assert "here, the last" not in site.get("/?hours=1")[1]


def flapping(sidecar: Sidecar, number: int, clusters: list[str]) -> list[AnyRecord]:
    """So many transitions in the last day: in every second column of the picture all components lose and get a leader nine times."""
    own = [transition for transition in sidecar.transitions() if transition.job_id is None]
    column, together = DAY * SECOND // COLUMNS, 54
    begin = sidecar.now - DAY * SECOND + 60 * SECOND
    made: list[AnyRecord] = []
    for n in range(number):
        like: TransitionRecord = own[n % 3]
        gets = (n // 3) % 2
        at = timestamp(begin + n // together * 2 * column + n % together * SECOND)
        address = f"pekko.tcp://flink@jm-{n // together % 50}:6123/x"
        change = {
            "kind": ("REVOKED", "GRANTED")[gets],
            "pattern": ("A->null", "null->B")[gets],
            "before_address": (address, None)[gets],
            "after_address": (None, address)[gets],
        }
        cluster = clusters[n // 6 % len(clusters)]
        made.append(replace(like, id=record_id(n), cluster_id=cluster, observed_at=at, **change))
    return made


def many_episodes(sidecar: Sidecar, number: int, clusters: list[str]) -> list[AnyRecord]:
    like = sidecar.episodes()[0]
    step = (DAY - 60) * SECOND // number
    return [
        replace(
            like,
            id=record_id("e", n),
            cluster_id=clusters[n % len(clusters)],
            opened_at=timestamp(sidecar.now - n * step),
        )
        for n in range(number)
    ]


@pytest.mark.parametrize("others", [0, 2, 120])
def test_ten_thousand_transitions_are_a_small_page(site: Site, tmp_path: Path, others: int) -> None:
    """Also of many clusters: the worst have pictures, the others a line and a link to a page of their own."""
    sidecar = two_failovers()
    names = [CLUSTER, *(f"cluster-{n}" for n in range(others))]
    journal = [*flapping(sidecar, 9_700, names), *many_episodes(sidecar, 500, names)]
    remember(tmp_path, sidecar, journal)
    cluster = sidecar.state.clusters[CLUSTER]
    site.snapshot = Snapshot(sidecar.moment, State(dict.fromkeys(names, cluster)), policy=sidecar.policy)
    site.now = sidecar.moment
    page = site.get("/")[1]
    assert len(page) < 100_000
    assert page.count('class="bar"') == 3 * min(3, len(names))
    paths = re.findall(r'<path class="(?:led\d|vacant)" d="([^"]+)"', page)
    assert 100 < sum(path.count("M") for path in paths) <= 9 * COLUMNS
    if others > 100:
        assert "And 21 more clusters, none of them worse." in read(site)
        assert "?cluster=cluster-100" in Markup(page).links
        assert "Flink leaders: cluster-100 As of" in read(site, "/?cluster=cluster-100")


def test_the_journal_is_read_again_only_for_a_new_record(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the page is updated."""
    reads = []

    def read_and_count(*what: Any) -> LastDay:
        reads.append(what)
        return real(*what)

    real = queries.read_last_day
    monkeypatch.setattr(queries, "read_last_day", read_and_count)
    sidecar = two_failovers()
    remember(tmp_path, sidecar)
    show(site, sidecar)
    pages = [read(site) for _ in range(5)]
    assert (len(reads), len(set(pages))) == (1, 1)
    remember(tmp_path, sidecar, [replace(sidecar.records[0], id=record_id("new"))])
    read(site)
    assert len(reads) == 2


def test_the_last_day_is_read_in_parts(tmp_path: Path) -> None:
    """What is read record by record is what is read at once."""
    sidecar = two_failovers()
    day, journal = None, JournalReader(tmp_path)
    remember(tmp_path, sidecar, [])
    for record in sidecar.records:
        remember(tmp_path, sidecar, [record])
        day = queries.read_last_day(journal, sidecar.now, day)
    at_once = queries.read_last_day(journal, sidecar.now)
    assert day == replace(at_once, since=day.since if day else 0)
    assert {len(changes) for changes in at_once.changes.values()} == {5}
    journal.close()


def test_the_picture_of_a_failover(site: Site, tmp_path: Path) -> None:
    """Each component, the job by its name where Flink's REST API has it, and its messages by the receiver's service and name."""
    sidecar = two_failovers()
    episode = sidecar.episodes()[0]
    job = captured(sidecar, 7, kind="job", subject="ff595cc2c737b4d30a69e740b7002d50", attributes={"name": "Orders"})
    notifications = [replace(notification, episode_id=episode.id) for notification in sidecar.notifications()]
    remember(tmp_path, sidecar, [*sidecar.transitions(), episode, *notifications, job])
    show(site, sidecar)
    services = {"ops": tuple(replace(each, service="slack") for each in sidecar.policy.receivers["ops"])}
    site.snapshot = replace(site.snapshot, policy=replace(sidecar.policy, receivers=services))
    page = site.get(f"/episodes/{episode.id}")[1]
    assert page.count('aria-label="job Orders: led by jm-a, jm-b, no leader once, 2.0 s"') == 1
    text = read(site, f"/episodes/{episode.id}")
    assert "no leader once, 2.0 s. dispatcher jm-a jm-b resource_manager" in text
    assert "FlinkLeaderChanged FIRST slack ops delivered" in text
    assert (
        "next Find out how jm-a ended: exit code, OOM kill, node, last lines of its log. More about jobmanager_lost"
        in text
    )
    assert "job Orders" in text
    assert "<title>2 here, the last: 08:01:07 FlinkLeaderChanged FIRST to ops: delivered</title>" in page


def test_a_leader_has_the_name_of_its_pod(site: Site, tmp_path: Path) -> None:
    """Where that is known: an IP address says little."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar)
    show(site, sidecar)
    pods = {"jm-b": Pod("orders-jobmanager-1")}
    cluster = replace(sidecar.state.clusters[CLUSTER], pods=pods)
    site.snapshot = replace(site.snapshot, state=replace(sidecar.state, clusters={CLUSTER: cluster}))
    page = site.get("/")[1]
    assert "dispatcher: led by jm-a, orders-jobmanager-1, no leader 2 times" in page
    assert "orders-jobmanager-1 was lost" in page
    assert "led by jm-a, orders-jobmanager-1" in site.get(f"/episodes/{sidecar.episodes()[0].id}")[1]


def test_an_age_is_that_of_now(site: Site, tmp_path: Path) -> None:
    """Not of the snapshot: one that is old does not look young."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar)
    show(site, sidecar)
    site.now = Moment(sidecar.now + 3600 * SECOND, sidecar.now + 3600 * SECOND)
    text = read(site)
    assert "(1 h ago)" in text
    assert "This page is out of date: the owner's thread has been stuck for 3600 s." in text
    assert 'class="verdict grey"' in site.get("/")[1]
