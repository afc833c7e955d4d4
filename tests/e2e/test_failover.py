"""The whole way on real Flink: a killed leader becomes records, one alert, metrics and rows in Spark SQL."""

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.kit.browser import Page, chromium
from tests.kit.sidecar_process import Sidecar, command
from tests.kit.waiting import wait_for
from tests.lab.flink import Lab
from tests.lab.receivers import HttpReceiver

COMPONENTS = {"resource_manager", "dispatcher", "rest_server", "job"}

KILLED_WITHIN = 1.0
"""Seconds from the time that is noted to the end of the process."""
pytestmark = [pytest.mark.e2e, pytest.mark.spark]


@pytest.fixture
def sidecar_of(tmp_path: Path) -> Iterator[Callable[..., Sidecar]]:
    """Makes sidecars, of which none is left running, also where the test fails."""
    made: list[Sidecar] = []

    def make(cluster: str, receiver_urls: list[str], *, group_wait: str) -> Sidecar:
        made.append(Sidecar(tmp_path, cluster, receiver_urls, group_wait=group_wait))
        return made[-1]

    yield make
    for sidecar in made:
        sidecar.end()


@pytest.mark.parametrize("lab", ["2.3.0"], indirect=True)
def test_a_job_that_ends_is_retired_and_alerts_nobody(
    lab: Lab, people: HttpReceiver, sidecar_of: Callable[..., Sidecar]
) -> None:
    """Cancelling a job is no failover."""
    job = lab.submit_job()
    sidecar = sidecar_of(f"flink_conf_dir: {lab.conf_dir}", [people.url], group_wait="1s")
    sidecar.start().wait_ready()
    lab.cancel_job(job)
    wait_for(
        "the job to be retired",
        lambda: any(t["kind"] == "RETIRED" and t["job_id"] == job for t in sidecar.transitions()),
    )
    second = lab.submit_job()
    wait_for(
        "the next job's leader",
        lambda: any(t["kind"] == "GRANTED" and t["job_id"] == second for t in sidecar.transitions()),
    )
    assert sidecar.stop() == 0
    assert not [record for record in sidecar.records() if record["type"] == "notification"]
    assert people.received == []
    lab.cancel_job(second)


@pytest.mark.parametrize("lab", ["2.3.0", "1.20.5"], indirect=True)
def test_kill_9_of_the_leader_goes_the_whole_way(
    lab: Lab, people: HttpReceiver, sidecar_of: Callable[..., Sidecar], tmp_path: Path
) -> None:
    """A→null→B for each of the four components, one alert, one episode with its cause, and one row per transition in the audit log."""
    job = lab.submit_job()
    cluster = f"flink_conf_dir: {lab.conf_dir}\nevidence: {{capture: [processes, flink_rest, leader_thread_dump]}}"
    sidecar = sidecar_of(cluster, [people.url], group_wait="12s")  # a busy machine takes its time
    sidecar.start().wait_ready()
    # Jobs of the tests before may be known from the handover: that they have ended is recorded too.
    found = {t["component"]: t["kind"] for t in sidecar.transitions() if t["job_id"] in {None, job}}
    assert found == dict.fromkeys(COMPONENTS, "DISCOVERED")

    with chromium() as page:
        page.visit(f"http://127.0.0.1:{sidecar.port}/", 390, "dark")
        page.value("window.same = 1")
        leader = wait_for("a leader", lab.leading)
        died = time.time()
        leader.kill()
        wait_for(
            "the new leaders", lambda: sum(t["kind"] == "GRANTED" for t in sidecar.transitions()) >= len(COMPONENTS)
        )
        wait_for("the alert", lambda: people.received)
        wait_for("the deliveries to be settled", lambda: "flink_ha_outbox_pending 0.0" in sidecar.get("/metrics")[1])
        episode = f'flink_ha_episodes_total{{cause="jobmanager_lost",cluster_id="{lab.cluster_id}"}} 1.0'
        wait_for("the end of the episode", lambda: episode in sidecar.get("/metrics")[1])
        _assert_the_page_shows_it_without_a_reload(page)
    metrics = sidecar.get("/metrics")[1]
    assert sidecar.stop() == 0

    transitions = sidecar.transitions()
    for component in COMPONENTS:
        discovered, revoked, granted = (
            t for t in transitions if t["component"] == component and t["job_id"] in {None, job}
        )
        assert [t["pattern"] for t in (discovered, revoked, granted)] == ["?->A", "A->null", "null->B"]
        assert discovered["after_session_id"] == revoked["before_session_id"] != granted["after_session_id"]
        assert 0 < granted["vacant_seconds"] <= granted["downtime_seconds_at_least"]
        # By the session's timeout, which Flink's configuration says, or by the end of the process, where that was observed.
        true = datetime.fromisoformat(granted["observed_at"]).timestamp() - died
        assert granted["downtime_seconds_at_least"] <= true <= granted["downtime_seconds_at_most"] + KILLED_WITHIN
        assert granted["job_id"] == (job if component == "job" else None)
        assert (
            f'flink_ha_leader_transitions_total{{cluster_id="{lab.cluster_id}",component="{component}",kind="GRANTED"}} 1.0'
            in metrics
        )

    alert, *closing = people.received
    assert [message.title[:5] for message in closing] in ([], ["[OK] "])
    assert "JobManager failed over" in alert.body
    assert "\nJobManager: " in alert.body
    assert re.search(rf"{job[:8]}…\): restored from checkpoint [1-9]", alert.body)
    _assert_evidence_is_kept(sidecar, job)

    audit = tmp_path / "audit"
    taken = command("audit", "ingest", "--spool", str(sidecar.spool), "--audit", str(audit))
    assert taken.returncode == 0, taken.stderr
    question = """
        SELECT component, after_session_id, cause, kept, ids
        FROM leader_changes CROSS JOIN (SELECT count(*) AS kept, count(DISTINCT id) AS ids FROM transitions)
    """
    answer = command("audit", "sql", "--audit", str(audit), question, "--output", "json")
    assert answer.returncode == 0, answer.stderr
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert {row["component"]: row["after_session_id"] for row in rows} == {
        t["component"]: t["after_session_id"] for t in transitions if t["kind"] == "GRANTED"
    }
    assert {(row["cause"], row["kept"], row["ids"]) for row in rows} == {
        ("jobmanager_lost", len(transitions), len(transitions))
    }


def _assert_the_page_shows_it_without_a_reload(page: Page) -> None:
    """The failover is in the list and in the picture, and everything is led."""
    page.until("document.querySelectorAll('[id^=episode-]').length === 1")
    page.until("document.querySelector('.verdict').innerText.includes('1 of 1 jobs run')")
    assert page.value("window.same") == 1
    assert "jobmanager_lost" in page.value("document.querySelector('[id^=episode-]').innerText")
    assert page.value("document.querySelectorAll('.bar path.vacant').length") == len(COMPONENTS) - 1
    assert page.complaints == []


def _assert_evidence_is_kept(sidecar: Sidecar, job: str) -> None:
    """Of the JobManager that stood by, when the leader was gone; of the one that leads now; and of the job."""
    (episode,) = (record for record in sidecar.records() if record["type"] == "episode")
    evidence = [record for record in sidecar.records() if record["type"] == "evidence"]
    assert {record["episode_id"] for record in evidence} == {episode["id"]}
    captured = {(e["occasion"], e["kind"]) for e in evidence if e["outcome"] == "captured"}
    assert captured >= {
        ("opened", "process"),
        ("opened", "thread_dump"),
        ("led_again", "thread_dump"),
        ("led_again", "job"),
    }
    dumps = {e["occasion"]: e["file"] for e in evidence if e["kind"] == "thread_dump" and e["outcome"] == "captured"}
    for file in dumps.values():
        assert "flink-pekko.actor" in (sidecar.state / "evidence" / file).read_text()
    (restored,) = (e for e in evidence if e["kind"] == "job")
    assert restored["subject"] == job
    assert int(restored["attributes"]["restored_checkpoint_id"]) > 0
