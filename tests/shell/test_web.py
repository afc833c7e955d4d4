"""Health, metrics, leaders and failovers over real HTTP."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import to_builtins

from sidecar.app import history
from sidecar.core.finder import Finder
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId
from sidecar.core.observations import (
    ClustersListed,
    ConnectionState,
    LeftOut,
    NothingFound,
    Observation,
    SnapshotCompleted,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.core.state import State
from sidecar.core.views.explain import MOST_KEPT, explanation_lines, find
from sidecar.core.views.snapshot import Health, Snapshot
from sidecar.journal import JournalReader
from tests.kit.cluster import job_manager
from tests.kit.core_sidecar import Sidecar
from tests.kit.observed_failovers import CLUSTER, at, first_sight, play
from tests.shell.remembering import hostile_records, remember, storm, two_failovers
from tests.shell.site import Site, captured


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.stop()
    running.stop()


@pytest.fixture
def remembered(site: Site, tmp_path: Path) -> Sidecar:
    """What the site's journal and snapshot know of: a failover, a time of blindness, and a failover that is not over."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar)
    site.snapshot = Snapshot(sidecar.moment, sidecar.state)
    return sidecar


def ids(objects: list[dict[str, Any]]) -> list[str]:
    return [record["id"] for record in objects]


def test_ready_means_seen_whole(site: Site) -> None:
    """503 with the reason until then, and again when the view is lost."""
    assert site.get("/readyz") == (503, "starting\n")
    scene = first_sight()
    site.snapshot = Snapshot(at(0), play(scene[:-1])[0])
    assert site.get("/readyz") == (503, "the view of the store is incomplete: default: CONNECTED\n")
    site.snapshot = Snapshot(at(0), play(scene)[0])
    assert site.get("/readyz") == (200, "ok\n")
    lost = ViewObserved(at(5), CLUSTER, ConnectionState.SUSPENDED)
    site.snapshot = Snapshot(at(5), play([*scene, lost])[0])
    assert site.get("/readyz") == (503, "the view of the store is incomplete: default: SUSPENDED\n")


def test_what_is_beyond_a_bound_is_named(site: Site) -> None:
    """One that watches other clusters, or parts of one, is ready; one that watches none because there is too much else is not."""
    scene = [*first_sight(), LeftOut(at(1), CLUSTER, jobs=3)]
    listed = ClustersListed(at(1), "zk:2181/flink", frozenset(), unlisted=20_000, beyond=("tenant",))
    search = "not everything is observed in zk:2181/flink: left out 20,000 znodes that may lead to clusters of tenant, beyond the bounds"
    site.snapshot = Snapshot(at(1), play([*scene, listed])[0])
    jobs = "not everything is observed: left out at least 3 jobs, more than can be watched"
    assert site.get("/readyz") == (200, f"ok; {CLUSTER}: {jobs}; {search}; 1 cluster watched\n")
    assert (jobs in site.get("/")[1], search in site.get("/")[1]) == (True, True)
    site.snapshot = Snapshot(at(1), State(finder=Finder.from_listed(listed)))
    assert site.get("/readyz") == (503, f"{search}; 0 clusters watched\n")


def test_what_was_left_out_because_of_an_error_is_named(site: Site) -> None:
    """The sidecar is ready, as all else goes on; `/readyz` and the page say what is not done."""
    line = "rule FlinkNoLeader of cluster <b>: IndexError: 7"
    site.snapshot = Snapshot(at(0), play(first_sight())[0], health=Health(quarantined=(line,)))
    assert site.get("/readyz") == (200, f"ok; left out because of an error in the sidecar: {line}\n")
    assert "rule FlinkNoLeader of cluster &lt;b&gt;: IndexError: 7" in site.get("/")[1]


def test_alive_means_that_the_owner_moves(site: Site) -> None:
    """A store that is down does not restart the sidecar; a stuck owner does."""
    assert site.get("/livez") == (200, "ok\n")
    site.now = at(31)
    assert site.get("/livez") == (503, "the owner's thread has been stuck for 31 s\n")


def test_clusters_as_data(site: Site) -> None:
    """One object for each, with its status, since when, and what the page says."""
    site.snapshot = Snapshot(at(0), play(first_sight())[0])
    [cluster] = json.loads(site.get("/api/v1/clusters")[1])
    sentence = "jm-1 leads; whether jobs run is not known (no REST)"
    assert (cluster["cluster_id"], cluster["status"], cluster["sentence"]) == ("default", "UNCHECKED", sentence)
    assert cluster["status_since"]


def test_leaders_as_data(site: Site) -> None:
    """One object for each component, with who, since when."""
    site.snapshot = Snapshot(at(0), play(first_sight())[0])
    status, body = site.get("/api/v1/leaders")
    leaders = json.loads(body)
    assert status == 200
    assert [leader["component"] for leader in leaders] == ["dispatcher", "resource_manager", "rest_server"]
    assert {leader["state"] for leader in leaders} == {"held"}
    assert leaders[0]["leader_address"] == "pekko.tcp://flink@jm-1:6123/user/rpc/x_1"


def test_other_paths_and_methods_are_refused(site: Site) -> None:
    """No path answers by accident."""
    assert site.get("/metrics") == (200, "metrics\n")
    assert site.get("/metrics", "POST")[0] == 405
    assert site.get("/healthz")[0] == 404
    assert site.get("/metrics", "HEAD") == (200, "")


def test_many_idle_connections_do_not_stop_an_answer(site: Site) -> None:
    """A hundred half-open clients cost no thread each."""
    idle = [socket.create_connection(("127.0.0.1", site.server.port), timeout=5) for _ in range(40)]
    try:
        assert site.get("/livez") == (200, "ok\n")
    finally:
        for connection in idle:
            connection.close()


def test_a_port_that_is_taken_is_an_os_error(site: Site, tmp_path: Path) -> None:
    """The caller reports it in one line."""
    with pytest.raises(OSError, match="in use"):
        Site(tmp_path, site.server.port)


def test_transitions_as_data(site: Site, remembered: Sidecar) -> None:
    """The records as they are, the last so many, the newest first."""
    recorded = to_builtins(remembered.transitions())[::-1]
    assert len(recorded) > 5
    assert site.data("/api/v1/transitions") == recorded
    assert site.data("/api/v1/transitions?last=5") == recorded[:5]
    assert site.data("/api/v1/transitions?last=1000") == recorded


def test_the_last_hundred_where_no_number_is_asked_for(site: Site, tmp_path: Path) -> None:
    """Of however many there are."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar, storm(sidecar, 200))
    assert len(site.data("/api/v1/transitions")) == 100


def test_episodes_as_data(site: Site, remembered: Sidecar) -> None:
    """What is not over comes first, by its phase; what is over has the fields of its record."""
    episodes = site.data("/api/v1/episodes")
    opened = remembered.state.clusters["default"].episode
    assert opened
    lost, blind = remembered.episodes()
    assert [(episode["id"], episode["phase"], episode["cause"]) for episode in episodes] == [
        (opened.id, "OPEN", "jobmanager_lost"),
        (blind.id, "CLOSED", "observer_blind"),
        (lost.id, "CLOSED", "jobmanager_lost"),
    ]
    record = to_builtins(lost)
    nothing = {"death_reason": None, "death_confidence": None, "recovery_verdict": None, "reviewed": False}
    assert episodes[2] == {"phase": "CLOSED", "status": "UNCHECKED"} | nothing | {
        name: record[name] for name in episodes[2] if name in record
    }
    assert (episodes[0]["closed_at"], episodes[0]["jobs_missing"], episodes[0]["jobs_total"]) == (None, 1, 1)
    assert episodes[0]["components"] == ["dispatcher", "job", "resource_manager", "rest_server"]
    assert ids(site.data("/api/v1/episodes?last=1")) == [opened.id]
    assert ids(site.data("/api/v1/episodes?last=2")) == [opened.id, blind.id]


def test_an_episode_whose_leader_is_back(site: Site, remembered: Sidecar) -> None:
    """It is not over until its jobs are led as well."""
    leader = job_manager("jm-c")
    remembered.sees(remembered.flink.elect(leader, *CLUSTER_COMPONENTS)).waits(10)
    site.snapshot = Snapshot(remembered.moment, remembered.state)
    first = site.data("/api/v1/episodes")[0]
    assert (first["phase"], first["jobs_missing"], first["closed_at"]) == ("LEADER_BACK", 1, None)
    assert first["after_address"] == leader.leads(ComponentId(Component.DISPATCHER)).address


def test_one_episode_as_data(site: Site, tmp_path: Path) -> None:
    """By the first characters of its id: the text of `explain`, and its records."""
    sidecar = two_failovers()
    dump = captured(sidecar)
    records = [*hostile_records(sidecar), dump]
    remember(tmp_path, sidecar, records)
    site.snapshot = Snapshot(sidecar.moment, sidecar.state)
    episode = sidecar.episodes()[0]
    noted = history.annotate(tmp_path, episode.id, "drained by mistake", "Ada")
    story = site.data(f"/api/v1/episodes/{episode.id[:8]}")
    assert (story["episode"]["id"], story["episode"]["phase"]) == (episode.id, "CLOSED")
    assert story["words"] == list(explanation_lines(find([*records, noted], episode.id)))
    assert ids(story["transitions"]) == [t.id for t in sidecar.transitions() if t.episode_id == episode.id]
    assert story["transitions_total"] == len(story["transitions"]) == 8
    assert ids(story["notifications"]) == [n.id for n in sidecar.notifications()]
    assert story["annotations"] == [to_builtins(noted)]
    assert story["evidence"] == [to_builtins(dump)]


def test_an_episode_that_is_not_over_is_known_without_the_journal_s_help(
    site: Site, remembered: Sidecar, tmp_path: Path
) -> None:
    """While the disk refuses, its records wait in memory."""
    opened = remembered.state.clusters["default"].episode
    assert opened
    assert len(site.data(f"/api/v1/episodes/{opened.id}")["transitions"]) == 4
    (tmp_path / "journal.db").unlink()
    remember(tmp_path, remembered, [])
    story = site.data(f"/api/v1/episodes/{opened.id[:6]}")
    assert (story["episode"]["phase"], story["transitions"], story["words"][:4]) == (
        "OPEN",
        [],
        [
            f"episode    {opened.id}",
            "cluster    default",
            f"from       {story['episode']['opened_at']}, in progress",
            "cause      jobmanager_lost (medium), as far as is known now",
        ],
    )


def test_a_storm_of_jobs_is_shown_within_bounds(site: Site, tmp_path: Path) -> None:
    """All of the cluster's own components, the first of the jobs, and how many there were."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar, storm(sidecar, 5000))
    story = site.data(f"/api/v1/episodes/{sidecar.episodes()[0].id}")
    jobs = [transition for transition in story["transitions"] if transition["job_id"]]
    assert (len(jobs), len(story["transitions"]) - len(jobs)) == (MOST_KEPT, 6)
    assert story["transitions_total"] == 5008
    assert story["words"][-1] == "… and 4983 more"


@pytest.mark.parametrize(
    "query",
    ["last=0", "last=1001", "last=-1", "last=x", "last=", "last=1e3", "last=1&last=2", "first=1", "last=٣", "%00"],
)
def test_a_wrong_number_is_a_bad_request(site: Site, remembered: Sidecar, query: str) -> None:
    """In one line, which names the allowed values."""
    for path in ("/api/v1/transitions", "/api/v1/episodes"):
        said = f"{path} takes last=N, from 1 to 1000, and nothing else\n"
        assert site.get(f"{path}?{quote(query, safe='=&%')}") == (400, said)


@pytest.mark.parametrize("path", ["/episodes/", "/api/v1/episodes/"])
def test_an_unknown_episode_is_not_found(site: Site, remembered: Sidecar, path: str) -> None:
    """Nor is one of which too little was named."""
    for name in ("ffffffff", "ffffffff-0000-0000-0000-000000000000"):
        unknown = f"no known episode begins with '{name}': `episodes` lists them\n"
        assert site.get(path + name) == (404, unknown)
    for name in ("c", "c22", "%3Cscript%3E", "c22b*", "'", "C22B78CE"):
        status, said = site.get(path + name)
        assert (status, said.partition(" like ")[0]) == (404, "no episode has an id")
        assert said.endswith(": it takes its first characters, at least four\n")
    for name in ("", "c22b78ce/x", "..%2f..%2fetc"):
        status, said = site.get(path + name)
        assert (status, said.partition(":")[0]) == (404, "the paths are")


@pytest.mark.parametrize("path", ["/api/v1/transitions", "/api/v1/episodes", "/api/v1/episodes/9280", "/episodes/9280"])
def test_a_journal_that_cannot_be_read_is_one_line(site: Site, tmp_path: Path, path: str) -> None:
    """One that is not there, or is something else."""
    status, said = site.get(path)
    assert (status, said.count("\n")) == (503, 1)
    assert said.startswith("cannot read ")
    (tmp_path / "journal.db").write_text("no database at all, and longer than a header of SQLite's would be" * 9)
    status, said = site.get(path)
    assert (status, said.count("\n")) == (503, 1)
    assert "not a database" in said


def test_a_disk_that_hangs_does_not_stop_other_answers(site: Site, remembered: Sidecar, tmp_path: Path) -> None:
    """Two requests may wait for it; others are refused at once, and the kubelet gets its answer."""
    waiting = [Event(), Event()]
    free = Event()

    def hanging() -> JournalReader:
        next(event for event in waiting if not event.is_set()).set()
        assert free.wait(10)
        return JournalReader(tmp_path)

    site.journal = hanging
    answers: list[int] = []
    asking = [Thread(target=lambda: answers.append(site.get("/api/v1/episodes")[0])) for _ in waiting]
    for thread, event in zip(asking, waiting, strict=True):
        thread.start()
        assert event.wait(10)
    try:
        busy = "other requests are reading the journal: try again"
        assert site.get("/api/v1/transitions") == (503, f"{busy}\n")
        assert site.get("/livez") == (200, "ok\n")
        assert busy in site.get("/")[1]
    finally:
        free.set()
        for thread in asking:
            thread.join(10)
    assert answers == [200, 200]
    site.journal = lambda: JournalReader(tmp_path)
    assert site.get("/api/v1/transitions")[0] == 200


def test_a_missing_cluster_is_reported_and_the_sidecar_is_ready(site: Site) -> None:
    """The store is in sight, and a Flink may be started later: 200, and in the text what is wrong; on the page, too."""
    scene: list[Observation] = [
        *(first_sight()[:2]),
        SnapshotCompleted(at(0), CLUSTER),
        NothingFound(at(0), CLUSTER, "zk:2181/flink/payements in ZooKeeper", ("<b>", "payments")),
    ]
    site.snapshot = Snapshot(at(0), play(scene)[0])
    why = "no such cluster: nothing was ever found under zk:2181/flink/payements in ZooKeeper; clusters found beside it: <b>, payments"
    assert site.get("/readyz") == (200, f"ok; default: {why}\n")
    page = site.get("/")[1]
    assert "beside it: &lt;b&gt;, payments" in page
    assert "no leader</strong>" not in page


def test_a_view_that_gets_old_is_not_ready_even_while_the_owner_is_busy(site: Site) -> None:
    """The snapshot is the previous one: by the current time, the confirmation is overdue."""
    scene: list[Observation] = [*first_sight(), ViewConfirmed(at(0), CLUSTER, 1_000_000)]
    site.snapshot = Snapshot(at(0), play(scene)[0])
    assert site.get("/readyz") == (200, "ok\n")
    site.now = at(4.1)
    assert site.get("/readyz") == (
        503,
        "the view of the store is incomplete: default: CONNECTED, not answering in time\n",
    )
