"""Pictures of a real Flink are what Flink says, before, during and after a failover."""

import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import Checkpoints, Picture, PictureRequest
from sidecar.runtime.clock import Clock
from sidecar.sinks.pictures.picture_taker import PictureTaker
from tests.kit.waiting import PATIENCE_SECONDS, wait_for
from tests.lab import rest
from tests.lab.flink import Lab
from tests.lab.lab_error import LabError

MILLISECOND = 1000
NEEDED = 2
"""Checkpoints that are completed before the leader is killed."""


@pytest.fixture
def take() -> Iterator[Callable[[Lab, str], PictureTaken]]:
    """Takes a picture of the lab's REST server at an address."""
    answers = SimpleQueue[PictureTaken]()
    taker = PictureTaker(Clock())
    taker.start(answers.put)

    def one(lab: Lab, address: str) -> PictureTaken:
        taker.take(PictureRequest(lab.cluster_id, address, thorough=True))
        return answers.get(timeout=PATIENCE_SECONDS)

    yield one
    taker.stop()


def checkpoints(picture: Picture | None) -> Checkpoints | None:
    return picture.jobs[0].checkpoints if picture and picture.jobs else None


@pytest.mark.e2e
@pytest.mark.parametrize("lab", ["2.3.0", "1.20.5"], indirect=True)
def test_pictures_of_a_failover_are_true(lab: Lab, take: Callable[[Lab, str], PictureTaken]) -> None:
    """By what Flink itself says of the same checkpoints; in between there are problems, and no picture is wrong."""
    job = lab.submit_job()
    leader = lab.wait_for_leader()

    def ready() -> Picture | None:
        picture = take(lab, leader.rest_address).picture
        statistics = checkpoints(picture)
        return picture if statistics and len(statistics.completed) >= NEEDED else None

    before = wait_for("checkpoints", ready)
    assert_is_true(before, leader.rest_address, job)
    assert before.applications == (
        (("SingleJobApplication(never-ending)", "RUNNING"),) if lab.flink_version == "2.3.0" else None
    )
    assert [task_manager.id for task_manager in before.task_managers or ()] == ["taskmanager-1"]
    assert (before.slots_total, before.slots_free) == (2, 1)
    statistics = checkpoints(before)
    assert statistics
    assert statistics.latest
    assert (statistics.restored, statistics.restored_known, statistics.interval) == (None, True, 2_000_000)
    # A trigger that failed on a slow machine may have had no id: then which one was the first is not known.
    has_failed = listed(leader.rest_address, job)["counts"]["failed"] > 0
    assert statistics.first_id == 1 or (statistics.first_id is None and has_failed)

    leader.kill()
    assert take(lab, leader.rest_address).problem == "Flink's REST server cannot be reached: connection refused"
    (standby,) = [jobmanager for jobmanager in lab.jobmanagers if jobmanager is not leader]
    pictures: list[Picture] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (pictures and (after := checkpoints(pictures[-1])) and after.latest):
        assert time.monotonic() < deadline, "no checkpoint after the failover"
        answer = take(lab, standby.rest_address)
        assert answer.picture or answer.problem
        assert "unexpected" not in (answer.problem or "")
        pictures += [answer.picture] if answer.picture else []
        time.sleep(0.05)
    for picture in pictures:
        if found := checkpoints(picture):
            assert found.restored, "it was restored, and a picture says that it was not"
            assert found.restored.id >= statistics.latest.id
            assert found.first_id is None or found.first_id > found.restored.id
    assert_is_true(pictures[-1], standby.rest_address, job)
    assert pictures[-1].jobs[0].is_running


def assert_is_true(picture: Picture, address: str, job: str) -> None:
    """Each checkpoint is one that Flink lists, with the same numbers."""
    (pictured,) = picture.jobs
    assert (pictured.id, pictured.name, pictured.state) == (job, "never-ending", "RUNNING")
    said = listed(address, job)
    history = {each["id"]: each for each in said["history"]}
    assert pictured.checkpoints
    for checkpoint in pictured.checkpoints.completed:
        of_flink = history[checkpoint.id]
        assert of_flink["status"] == "COMPLETED"
        assert checkpoint.triggered_at == of_flink["trigger_timestamp"] * MILLISECOND
        assert checkpoint.ended_at == of_flink["latest_ack_timestamp"] * MILLISECOND
        assert checkpoint.size == of_flink["state_size"]
        assert checkpoint.path in {None, of_flink["external_path"]}
    restored = said["latest"]["restored"]
    if restored:
        assert pictured.checkpoints.restored
        assert pictured.checkpoints.restored.id == restored["id"]


def listed(address: str, job: str) -> dict[str, Any]:
    """What Flink says, once it answers."""

    def answer() -> dict[str, Any] | None:
        try:
            return rest.call(address, "GET", f"/jobs/{job}/checkpoints")
        except LabError:
            return None

    return wait_for("Flink's own statistics", answer)
