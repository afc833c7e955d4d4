"""The status page and the page of a failover: their content, escaped, small, readable, and without other resources."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.app import history
from sidecar.core.failover.recovery_tables import MOST_OF_A_REASON
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Destination, Source
from sidecar.core.views.snapshot import Health, Snapshot
from sidecar.web.pages import EVIDENCE_SHOWN, POLICY
from tests.kit.cluster import CLUSTER, A
from tests.kit.core_sidecar import Sidecar, fail_over, watching, with_destinations
from tests.kit.fake_flink import Flink
from tests.kit.outcomes import oom_with_a_lost_job
from tests.shell.reading import Markup, read, said, show
from tests.shell.remembering import (
    HOSTILE,
    hostile_evidence,
    hostile_outcomes,
    hostile_records,
    hostile_snapshot,
    remember,
    storm,
    two_failovers,
    with_jobs,
)
from tests.shell.site import Site, captured


def test_leaders_are_shown_with_their_start(site: Site) -> None:
    """Each component by its host, with the address and the session id; the view of the store; and no standby left, where that is so."""
    flink, sidecar = watching()
    show(site, sidecar)
    page = read(site)
    address = A.leads(CLUSTER_COMPONENTS[1]).address
    assert f"dispatcher jm-a:6123 {address} session {A.session_id} 2026-11-20 08:00:00" in page
    assert "Connected to the store since 2026-11-20 08:00:00" in page
    assert "1 job: 1 with a leader, 0 without a leader, 0 unknown." in page
    cluster = sidecar.state.clusters[CLUSTER]
    for latches, line in (
        ({"/leader/latch": ("a",)}, "No standby : only one JobManager contends."),
        ({"/leader/latch": ("a", "b")}, "2 JobManagers contend."),
        ({"/leader/latch": ()}, "since 2026-11-20 08:00:00.000 (1 min ago) ; all leaders have been read. Flink's UI"),
        ({}, "since 2026-11-20 08:00:00.000 (1 min ago) ; all leaders have been read. Flink's UI"),
    ):
        clusters = {CLUSTER: replace(cluster, contenders=latches)}
        site.snapshot = Snapshot(sidecar.moment, replace(sidecar.state, clusters=clusters))
        assert line in read(site)
        assert 'class="notice degraded"' not in site.get("/")[1], "there never was a standby"
    sidecar.sees(flink.vacate())
    show(site, sidecar)
    page = read(site)
    assert "rest_server no leader last known: jm-a:8081 (old) 2026-11-20 08:01:00" in page
    assert "No JobManager contends for leadership." in page


def test_blindness_is_not_the_absence_of_a_leader(site: Site) -> None:
    """It shows since when the store cannot be read, and what is unknown."""
    assert "BLIND this sidecar: no cluster is watched yet" in read(site)
    fresh = Sidecar(Flink())
    show(site, fresh)
    assert "The store has not been read completely yet (not connected yet)" in read(site)
    _, sidecar = watching()
    sidecar.is_cut_off()
    show(site, sidecar)
    assert "The store cannot be read since 2026-11-20 08:01:00" in read(site)
    sidecar.waits(10)
    show(site, sidecar)
    page = read(site)
    assert "dispatcher unknown : the store cannot be read last known: jm-a:6123 (old)" in page
    assert "BLIND default : cannot see it for 10 s" in page
    assert not re.search("(?<!, )no leader", page.replace("no leader cannot be seen", ""))


def test_a_rest_server_that_describes_nothing_is_shown(site: Site) -> None:
    """With its reason, once that has lasted longer than an election: not assessed is never healthy."""
    _, sidecar = watching(policy=replace(with_destinations(), evidence=frozenset({Source.FLINK_REST})))
    line = "Flink's REST server does not describe the cluster : \N{REPLACEMENT CHARACTER}[2J refused ."
    for is_late in (False, True):
        cluster = sidecar.state.clusters[CLUSTER]
        assert cluster.picture_request
        asked = replace(cluster.picture_request, problem="\x1b[2J refused")
        show(site, sidecar)
        site.snapshot = replace(
            site.snapshot, state=replace(sidecar.state, clusters={CLUSTER: replace(cluster, picture_request=asked)})
        )
        assert (line in read(site)) is is_late
        sidecar.waits(90)


def test_failovers_of_late(site: Site, tmp_path: Path) -> None:
    """What is not over first, each with a link to its page."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar)
    show(site, sidecar)
    opened = sidecar.state.clusters[CLUSTER].episode
    assert opened
    lost, blind = sidecar.episodes()
    page = read(site)
    assert (
        "OPEN default jm-b:6123 → no leader yet jobmanager_lost (medium), so far not over not over 1 of 1, 1 without a leader"
        in page
    )
    assert "default no failover observer_blind (high) \N{EN DASH} \N{EN DASH} 0 of 0" in page
    assert "default jm-a:6123 → jm-b:6123 jobmanager_lost (medium) 2.0 s at least 2.0 s 1 of 1" in page
    links = Markup(site.get("/")[1]).links
    for episode_id in (opened.id, blind.id, lost.id):
        assert f"episodes/{episode_id}" in links
        assert site.get(f"/episodes/{episode_id}")[0] == 200


def test_how_the_sidecar_itself_is(site: Site, tmp_path: Path) -> None:
    """Messages under way, records that wait or were lost, a journal that cannot be read, an owner that stands still: and who leads all the
    same.
    """
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = None
    fail_over(flink, sidecar).waits(10)
    assert sidecar.state.outbox
    show(site, sidecar)
    page = read(site)
    assert re.search(r"Pending notifications Not delivered yet .* FlinkLeaderChanged FIRST ops 2026-11-20 08:01:", page)
    assert "All records are on disk. 0 records are in no segment yet." in page
    assert "Earlier failovers are not shown: cannot read" in page
    remember(tmp_path, sidecar)
    site.snapshot = replace(site.snapshot, health=Health("the disk is full", 7, 3, 12))
    site.now = Moment(sidecar.now + 40 * SECOND, sidecar.now)
    page = read(site)
    assert "The journal cannot be written : the disk is full . 7 records wait in memory." in page
    assert "3 records were lost : neither disk nor memory had room. 12 records are in no segment yet." in page
    assert "This page is out of date: the owner's thread has been stuck for 40 s." in page
    assert "dispatcher jm-b:6123" in page
    assert "Earlier failovers" not in page


def test_a_scheduled_close_is_no_pending_notification(site: Site) -> None:
    """The incident of a failover that is over is closed later."""
    pager = Destination("ops", 0, in_order=True, keeps_incidents=True)
    flink, sidecar = watching(policy=with_destinations(pager))
    fail_over(flink, sidecar).waits(60)
    assert [delivery.is_closing for delivery in sidecar.state.outbox.values()] == [True]
    show(site, sidecar)
    assert "Pending notifications None." in read(site)


def test_one_failover_as_a_page(site: Site, tmp_path: Path) -> None:
    """The text of `explain`, notes, transitions in order, notifications."""
    sidecar = two_failovers()
    episode = sidecar.episodes()[0]
    notifications = [replace(notification, episode_id=episode.id) for notification in sidecar.notifications()]
    remember(tmp_path, sidecar, [*sidecar.transitions(), episode, *notifications])
    history.annotate(tmp_path, episode.id, "Drained by mistake, see https://wiki/" + "x" * 120, "Ada")
    show(site, sidecar)
    page = read(site, f"/episodes/{episode.id[:8]}")
    assert f"episode {episode.id} cluster default from {episode.opened_at} to {episode.closed_at}" in page
    assert (
        "cause jobmanager_lost (medium) The JobManager's ZooKeeper session expired: it did not shut down cleanly. "
        "Another JobManager took over. A JobManager that gets SIGTERM but halts before it has removed its addresses "
        "leaves the same facts" in page
    )
    assert f"by Ada Drained by mistake, see https://wiki/{'x' * 120} Transitions 8 transitions" in page
    assert page.index("REVOKED") < page.index("GRANTED")
    assert "FlinkLeaderChanged FIRST ops delivered" in page
    opened = sidecar.state.clusters[CLUSTER].episode
    assert opened
    page = read(site, f"/episodes/{opened.id}")
    assert "OPEN : not over yet. Began 2026-11-20 08:02:42.041 (0 s ago) , jm-b:6123 → no leader yet" in page
    assert "flink-ha-sidecar annotate" in page


def test_evidence_is_on_the_page_of_its_failover(site: Site, tmp_path: Path) -> None:
    """With the reason where nothing was, and with the name of the file, which is at the sidecar and is no link."""
    sidecar = two_failovers()
    dump = captured(sidecar)
    refused = captured(
        sidecar, 1, kind="py_spy", outcome="refused", detail="not permitted", subject="", file=None, size_bytes=None
    )
    remember(tmp_path, sidecar, [*sidecar.records, dump, refused])
    show(site, sidecar)
    page = site.get(f"/episodes/{dump.episode_id}")[1]
    when = f"{dump.observed_at[:10]} {dump.observed_at[11:23]}"
    assert (
        "Evidence What was captured, and what could not be At What Whose Outcome File "
        f"{when} thread_dump opened pid 17 (java) captured 31 threads, 2 of them blocked {dump.file} 4711 bytes "
        f"at sidecar-0 {when} py_spy opened \N{EN DASH} refused not permitted \N{EN DASH} Notifications"
    ) in said(page)
    assert str(dump.file) not in " ".join(Markup(page).links)
    other = sidecar.episodes()[1].id
    assert "Evidence None is recorded. Notifications" in read(site, f"/episodes/{other}")


def test_much_evidence_is_a_small_page(site: Site, tmp_path: Path) -> None:
    """The first 50 pieces, and how many there are."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar, [*sidecar.records, *(captured(sidecar, number) for number in range(60))])
    show(site, sidecar)
    page = site.get(f"/episodes/{sidecar.episodes()[0].id}")[1]
    assert f"The first {EVIDENCE_SHOWN} of 60" in said(page)
    assert page.count("pid 17 (java)") == EVIDENCE_SHOWN == 50
    assert len(page) < 60_000


def test_a_storm_of_jobs_is_a_small_page(site: Site, tmp_path: Path) -> None:
    """Jobs are counted, and the first 20 shown."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar, storm(sidecar, 5000))
    site.snapshot = with_jobs(sidecar, 10_000)
    page = site.get("/")[1]
    assert (
        "10001 jobs: 0 with a leader, 10001 without a leader , 0 unknown. The first 20, those without a leader"
        in said(page)
    )
    failover = site.get(f"/episodes/{sidecar.episodes()[0].id}")[1]
    assert "26 of 5008 transitions; of jobs the first 20 at most" in said(failover)
    assert (len(page) < 40_000, len(failover) < 40_000) == (True, True)


@pytest.mark.parametrize("path", ["/", "/episodes/"])
def test_hostile_text_is_text(site: Site, tmp_path: Path, path: str) -> None:
    """Markup, other directions, control characters and 10 kB, in addresses, reasons, facts, evidence and answers of receivers."""
    sidecar = two_failovers()
    episode = sidecar.episodes()[0].id
    where = "/" if path == "/" else path + episode
    remember(tmp_path, sidecar, [*sidecar.records, captured(sidecar), *oom_with_a_lost_job(sidecar.episodes()[0])])
    show(site, sidecar)
    history.annotate(tmp_path, episode, "</blockquote><script>alert(1)</script>", "<b>")
    ordinary = Markup(site.get(where)[1])
    (tmp_path / "journal.db").unlink()
    remember(tmp_path, sidecar, [*hostile_records(sidecar), *hostile_evidence(sidecar), *hostile_outcomes(sidecar)])
    history.annotate(tmp_path, episode, "</blockquote><script>alert(1)</script>", "<b>")
    site.snapshot = hostile_snapshot(sidecar)
    page = site.get(where)[1]
    hostile = Markup(page)
    assert hostile.tags - {"small", "br"} <= ordinary.tags
    assert "script" not in hostile.tags
    assert hostile.attributes == ordinary.attributes
    assert hostile.links == ordinary.links
    assert "&lt;script&gt;" in page
    assert len(page) < 100_000
    assert "x" * 200 not in page
    assert "y" * MOST_OF_A_REASON not in page
    assert not [char for char in page.replace("\n", "") if not char.isprintable()]


def test_a_page_may_do_nothing(site: Site, tmp_path: Path) -> None:
    """Its policy allows its own style and script and nothing else; every answer says what it is, and is not passed on."""
    remember(tmp_path, two_failovers())
    for path, content in (("/", "text/html; charset=utf-8"), ("/api/v1/episodes", "application/json")):
        _, headers, _ = site.ask(path)
        assert headers["Content-Type"] == content
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
    assert site.ask("/")[1]["Content-Security-Policy"] == POLICY
    hashed = "'sha256-[A-Za-z0-9+/]{43}='"
    allowed = f"style-src {hashed}; script-src {hashed}; connect-src 'self'"
    assert re.fullmatch(
        f"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; {allowed}", POLICY
    )
    assert site.get("/", "HEAD") == (200, "")
    assert site.get("/", "POST") == (405, "only GET\n")


def test_templates_are_loaded_with_the_first_page() -> None:
    """An idle sidecar has no jinja2 in its memory for the sake of pages."""
    idle = "import sys, sidecar.web.server; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", idle], timeout=60, check=False).returncode == 0


def test_untrusted_text_is_hostile() -> None:
    """So that these tests mean something."""
    assert all(part in HOSTILE for part in ("<script>", "\N{RIGHT-TO-LEFT OVERRIDE}", "\x1b", "{{", "x" * 10_000))
