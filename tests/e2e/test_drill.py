"""A drill of a real Flink, in both stores: a person kills the leader, and the report says what was measured. Nobody is paged."""

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.recovery_scene import LABS, PICTURE_SECONDS, RetainingLab, Store
from tests.kit.sidecar_process import Sidecar, command
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver

PASSED_SECONDS = 180.0
"""From the kill until everything is proven to be back: a session of 8 s, a restart of the job, a checkpoint, a picture."""

pytestmark = pytest.mark.e2e
_log = logging.getLogger("tests")


@pytest.mark.parametrize(("store", "version"), [("zookeeper", "2.3.0"), ("kubernetes", "2.3.0")])
def test_a_drill_proves_that_a_failover_works(store: str, version: str, people: HttpReceiver, tmp_path: Path) -> None:
    """Twice: the second report compares both. On call gets one message of each, marked as a drill, and nothing else."""
    with LABS[store](tmp_path, version) as (lab, stored):
        job = lab.submit_job()
        evidence = "evidence: {capture: [processes, flink_rest], flink_rest: {patience: 2m}}"
        sidecar = Sidecar(tmp_path / "sidecar", f"flink_conf_dir: {lab.conf_dir}\n{evidence}", [people.url])
        sidecar.start()
        try:
            sidecar.wait_ready()
            first = drilled(lab, stored, sidecar, job, "spring")
            assert drill(sidecar, "report", "last").splitlines()[0].endswith(": passed")
            for jobmanager in lab.jobmanagers:
                jobmanager.start()
            second = drilled(lab, stored, sidecar, job, "summer")
            text = drill(sidecar, "report")
            _log.info("%s\n%s", store, text)
        finally:
            sidecar.stop()
    assert [each["drill_id"] for each in second["earlier"]] == [first["drill"]["drill_id"]]
    assert len([line for line in text.splitlines() if line.endswith(" passed")]) == 3, "the drill, and the table"
    assert all(message.title.startswith("[DRILL] ") for message in people.received), people.received
    assert len(people.received) == 2


def drilled(lab: RetainingLab, stored: Store, sidecar: Sidecar, job: str, comment: str) -> dict[str, Any]:
    """The report of one drill, from its start to its end."""
    lab.wait_for_job(job)
    began = time.monotonic()
    wait_for("a picture of the running job", lambda: time.monotonic() - began > PICTURE_SECONDS)
    made = drill(sidecar, "start", "--window", "15m", "--comment", comment, "--author", "ann")
    wait_for("its message", lambda: outcome(sidecar, made) == "delivered")
    leader, last = lab.wait_for_leader(), stored.checkpoints(job)[-1]
    # In the middle of a checkpoint nobody knows whether it was completed: the recovery is unproven then.
    wait_for("the next checkpoint", lambda: stored.checkpoints(job)[-1] > last)
    leader.kill()
    report = wait_for("everything to be back", lambda: passed(sidecar), PASSED_SECONDS)
    assert drill(sidecar, "stop") == made
    [ended] = wait_for("its end", lambda: recorded(sidecar, made), PASSED_SECONDS)
    assert (ended["result"], ended["recovery_verdict"], ended["undelivered"]) == ("passed", "recovered", [])
    assert report["detected_after_seconds"] is not None, "the process ended beside the sidecar"
    assert 0 < report["leaderless_seconds"] <= report["led_after_seconds"] <= report["running_after_seconds"]
    assert {row["job_id"]: (row["outcome"], row["restored_from"]) for row in report["jobs"]} == {
        job: ("running", "latest")
    }
    assert {alert["alert"] for alert in report["hidden"]} == {"FlinkLeaderChanged"}
    assert [(message["destination"], message["delivered"]) for message in report["messages"]] == [("ops#0", True)]
    return report


def drill(sidecar: Sidecar, verb: str, *arguments: str) -> str:
    """What the command prints, which succeeds."""
    ended = command("drill", verb, "--config", str(sidecar.config), *arguments)
    assert (ended.returncode, ended.stderr) == (0, ""), (ended.stdout, ended.stderr)
    return ended.stdout.strip()


def passed(sidecar: Sidecar) -> dict[str, Any] | None:
    """The report, once the drill has passed. It does not fail meanwhile."""
    ended = command("drill", "report", "--config", str(sidecar.config), "-o", "json")
    assert ended.returncode in {0, 3}, (ended.stdout, ended.stderr)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found if found["result"] == "passed" else None


def recorded(sidecar: Sidecar, drill_id: str) -> list[dict[str, Any]]:
    """How it ended."""
    drills = [record for record in sidecar.records() if record["type"] == "drill" and record["drill_id"] == drill_id]
    return [each for each in drills if each["phase"] == "ended"]


def outcome(sidecar: Sidecar, drill_id: str) -> str:
    """Of its message."""
    notifications = [record for record in sidecar.records() if record["type"] == "notification"]
    return next((notice["outcome"] for notice in reversed(notifications) if notice["fingerprint"] == drill_id), "")
