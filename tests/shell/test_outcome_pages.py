"""Why a process died and what came back, on the pages and in the API; and which failovers nobody has reviewed."""

import json
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from sidecar.app import history
from sidecar.core.moment import SECOND, timestamp
from sidecar.core.observations import PodObserved, Ticked
from sidecar.core.process_end import ContainerEnd, PodStatus
from sidecar.core.records import Death, EpisodeRecord
from sidecar.core.views.episode_view import MOST_JOBS
from sidecar.web.pages import JOBS_SHOWN
from tests.kit.cluster import CLUSTER, B
from tests.kit.core_sidecar import watching
from tests.kit.outcomes import after, death, oom_with_a_lost_job, recovery
from tests.kit.sidecar_process import command
from tests.shell.reading import read, said, show
from tests.shell.remembering import remember, two_failovers
from tests.shell.site import Site


@pytest.fixture
def episode(site: Site, tmp_path: Path) -> EpisodeRecord:
    """A failover after an OOM kill, of whose two jobs one is lost; then a time of blindness, and a failover that is not over."""
    sidecar = two_failovers()
    sidecar.take(Ticked)
    episode = sidecar.episodes()[0]
    remember(tmp_path, sidecar, [*sidecar.records, *oom_with_a_lost_job(episode)])
    show(site, sidecar)
    return episode


def test_the_page_of_a_failover_says_why_it_died_and_what_came_back(site: Site, episode: EpisodeRecord) -> None:
    """The reason with its facts, the stages, the TaskManagers that are missing, and each job, the worst first."""
    page = read(site, f"/episodes/{episode.id}")
    assert (
        "died JobManager jm-a-0 was OOM-killed (exit 137, limit 1600 MiB) Its container's state is OOMKilled, " in page
    )
    assert "recovery lost, 2 of 3 TaskManagers registered again" in page
    assert (
        "How it came back the process ended 0.0 s its end was observed 2.5 s no leader 4.0 s a leader was elected 6.0 s "
        "the dispatcher leads 6.0 s Enrich orders 14 s, checkpoint 16 s 0.0 s 4.0 s 8.0 s 12 s 16 s" in page
    )
    assert "TaskManagers that did not register again: flink-taskmanager-1-3 ." in page
    lost, ran = "0" * 31 + "1", "ff595cc2c737b4d30a69e740b7002d50"
    none = "\N{EN DASH} \N{EN DASH} \N{EN DASH} \N{EN DASH}"
    assert (
        f"Nightly report {lost} is missing The job Nightly report is missing. {none} "
        f"Enrich orders {ran} runs again RUNNING 14 s its latest checkpoint 41 0 3.2 s" in page
    )


def test_the_picture_of_stages_has_a_sentence_for_each_row(site: Site, episode: EpisodeRecord) -> None:
    """For who does not see it; and a span is where it was."""
    page = site.get(f"/episodes/{episode.id}")[1]
    assert 'aria-label="Enrich orders: runs after 14 s, first checkpoint after 16 s"' in page
    assert '<rect class="vacant" x="0.0%" width="15.62%" y="5" height="14"/>' in page


def test_a_failover_with_hundreds_of_jobs_is_a_small_page(site: Site, tmp_path: Path) -> None:
    """The slowest are drawn, the worst listed, all counted."""
    sidecar = two_failovers()
    episode = sidecar.episodes()[0]
    jobs = [recovery(episode, f"{n:032x}", running_at=after(episode, n), name="n" * 300) for n in range(1, 501)]
    remember(tmp_path, sidecar, [*sidecar.records, recovery(episode), *jobs])
    show(site, sidecar)
    page = site.get(f"/episodes/{episode.id}")[1]
    assert f"The first {JOBS_SHOWN} of 500 jobs, the worst first" in said(page)
    assert f"{500 - MOST_JOBS} more jobs ran after 494 s at most." in said(page)
    assert len(page) < 60_000


def test_the_list_of_failovers_says_how_they_ended(site: Site, tmp_path: Path, episode: EpisodeRecord) -> None:
    """The process, the status until the next one, and whether somebody has reviewed it; blindness needs no review."""
    page = read(site)
    assert "jobmanager_lost (medium) process: oom_killed (high) 2.0 s at least 2.0 s 1 of 1 UNCHECKED" in page
    assert page.count("not reviewed") == 1
    history.annotate(tmp_path, episode.id, "Raised the limit, see OPS-3.", "Ada")
    assert "not reviewed" not in read(site)


def test_the_api_has_both(site: Site, tmp_path: Path, episode: EpisodeRecord) -> None:
    """As `explain -o json` does: the death, the verdict with its jobs, the stages; the list has the short form."""
    data = site.data(f"/api/v1/episodes/{episode.id}")
    explained = json.loads(command("explain", episode.id, "--state-dir", str(tmp_path), "-o", "json").stdout)
    assert {name: data[name] for name in ("death", "recovery", "stages")} == {
        name: explained[name] for name in ("death", "recovery", "stages")
    }
    assert (data["death"]["reason"], data["death"]["limit_bytes"]) == ("oom_killed", 1600 << 20)
    assert data["recovery"]["cluster"]["verdict"] == "lost"
    assert [job["outcome"] for job in data["recovery"]["jobs"]] == ["missing", "running"]
    assert [stage["stage"] for stage in data["stages"]] == [
        *("dead", "seen_dead", "no_leader", "elected", "dispatcher", "running", "checkpointed")
    ]
    keys = ("phase", "death_reason", "death_confidence", "recovery_verdict", "status", "reviewed")
    assert [[each[key] for key in keys] for each in site.data("/api/v1/episodes")] == [
        ["OPEN", None, None, None, "DOWN", False],
        ["CLOSED", None, None, None, None, None],
        ["CLOSED", "oom_killed", "high", "lost", "UNCHECKED", False],
    ]
    (shown, *over), (listed, *recorded) = to_builtins(history.episodes(tmp_path, 3)), site.data("/api/v1/episodes")
    # In progress it is as of now, and a command has no configuration.
    unknown = dict.fromkeys(("observed_at", "observer", "store"), "")
    assert (shown | unknown, over) == (listed | unknown, recorded)
    assert data["episode"] == site.data("/api/v1/episodes")[-1]


def test_failovers_are_open_for_review_until_they_are_annotated(tmp_path: Path, episode: EpisodeRecord) -> None:
    """`--last` counts those that are listed; blindness needs no review."""

    def listed(*more: str) -> list[str]:
        ended = command("episodes", "--unreviewed", "--state-dir", str(tmp_path), *more)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout.splitlines()

    table = listed()
    assert [line.split()[-2:] for line in table] == [
        ["CAUSE", "STATUS"],
        ["jobman…er_lost", "DOWN"],
        ["oom_killed", "UNCHECKED"],
    ]
    assert max(map(len, table)) <= 80
    [opened] = [each["id"] for each in json.loads(listed("--last", "1", "-o", "json")[0])]
    history.annotate(tmp_path, opened, "Under way.", None)
    assert [each["id"] for each in json.loads(listed("--last", "1", "-o", "json")[0])] == [episode.id]
    history.annotate(tmp_path, episode.id, "Raised the limit.", None)
    assert listed() == ["every recorded failover has been reviewed"]
    wide = command("episodes", "--state-dir", str(tmp_path), "-o", "wide").stdout.splitlines()
    assert wide[0].split()[-3:] == ["DIED", "RECOVERY", "REVIEWED"]
    assert wide[-1].split()[-3:] == ["oom_killed", "lost", "yes"]


def test_the_timeline_has_the_new_records(tmp_path: Path, episode: EpisodeRecord) -> None:
    """A line each; by kind, and those of jobs by component."""

    def lines(*more: str) -> list[str]:
        return command("timeline", "--state-dir", str(tmp_path), *more).stdout.splitlines()

    assert [line[28:] for line in lines("--kind", "death")] == [
        f"JobManager jm-a-0 was OOM-killed (exit 137, limit 1600 MiB) [{episode.id}]"
    ]
    assert len(lines("--kind", "recovery")) == 3
    assert sum("job Nightly report" in line for line in lines("--component", "job")) == 1


def test_a_death_of_a_failover_that_is_not_over_is_shown_as_soon_as_it_is_recorded(site: Site, tmp_path: Path) -> None:
    """In the list and on its page, which reads on in the journal."""
    sidecar = two_failovers()
    opened = sidecar.state.clusters["default"].episode
    assert opened
    episode = sidecar.episodes()[0]
    remember(tmp_path, sidecar)
    show(site, sidecar)
    assert "process:" not in read(site)
    (tmp_path / "journal.db").unlink()
    remember(tmp_path, sidecar, [*sidecar.records, death(episode, episode_id=opened.id)])
    assert "OPEN default jm-b:6123 → no leader yet jobmanager_lost (medium), so far process: oom_killed (high)" in read(
        site
    )
    assert "died JobManager jm-a-0 was OOM-killed" in read(site, f"/episodes/{opened.id}")


def test_what_is_known_of_a_death_is_shown_before_it_is_recorded(site: Site, tmp_path: Path) -> None:
    """Of a failover in progress: from the state, by the page, the API and the commands alike."""
    flink, sidecar = watching()
    pod = PodStatus("uid-a", "jm-a-0", "jm-a", phase="Running", limit_bytes=1600 << 20)
    sidecar.observe(PodObserved(sidecar.moment, CLUSTER, pod))
    sidecar.sees(flink.vacate()).waits(1)
    end = ContainerEnd(137, "OOMKilled", finished_at=sidecar.now - 3 * SECOND)
    seen_at = sidecar.now
    sidecar.observe(PodObserved(sidecar.moment, CLUSTER, replace(pod, last_end=end)))
    remember(tmp_path, sidecar)
    show(site, sidecar)
    opened = sidecar.state.clusters[CLUSTER].episode
    assert opened
    assert [record for record in sidecar.records if isinstance(record, Death)] == []
    line = "JobManager jm-a-0 was OOM-killed (exit 137, limit 1600 MiB)"
    assert f"died {line}" in read(site, f"/episodes/{opened.id}")
    assert f"died       {line}" in command("explain", "last", "--state-dir", str(tmp_path)).stdout
    page = read(site)
    assert "process: oom_killed (high)" in page
    assert "no leader for 1 s, jm-a-0 was OOM-killed" in page
    assert "Raise the JobManager's memory limit" in page
    assert site.data(f"/api/v1/episodes/{opened.id}")["death"]["reason"] == "oom_killed"
    sidecar.sees(flink.elect(B)).waits(60)
    [recorded] = [record for record in sidecar.records if isinstance(record, Death)]
    assert (recorded.episode_id, recorded.reason) == (opened.id, "oom_killed")
    assert (recorded.ended_at, recorded.seen_at) == (timestamp(end.finished_at or 0), timestamp(seen_at))
