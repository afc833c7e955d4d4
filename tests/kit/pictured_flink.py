"""What Flink's REST server answers of many jobs, for `flink_rest_server`: what a picture needs, as 2.3.0 and 1.20.5 wrote it."""

from collections.abc import Mapping
from typing import Any, Final

from tests.kit.flink_rest_server import Answer

STARTED: Final = 1_795_700_698_409
"""When every job began, in milliseconds."""


def job_id(number: int) -> str:
    return f"{number:032x}"


def listed(
    number: int = 1, name: str = "orders", state: str = "RUNNING", changed: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A job in `/jobs/overview`, all of whose tasks have run for a minute; `changed`: fields."""
    tasks = {"total": 2, "running": 2 if state == "RUNNING" else 0, "finished": 0}
    times = {"start-time": STARTED, "end-time": -1, "duration": 60_500, "last-modification": STARTED + 500}
    return {"jid": job_id(number), "name": name, "state": state, "tasks": tasks, **times, **(changed or {})}


def completed(number: int, **changed: Any) -> dict[str, Any]:
    """A checkpoint, one each second."""
    times = {"trigger_timestamp": STARTED + number * 1000, "end_to_end_duration": 94}
    path = f"file:/data/checkpoints/chk-{number}"
    return {
        "id": number,
        "status": "COMPLETED",
        "is_savepoint": False,
        "state_size": 265,
        "external_path": path,
        **times,
        **changed,
    }


def statistics(*history: dict[str, Any], restored: int | None = None, total: int | None = None) -> dict[str, Any]:
    """`/jobs/ID/checkpoints`: the latest first, as Flink lists them. `total`: how many there were, if it has forgotten some."""
    done = [checkpoint for checkpoint in history if checkpoint["status"] == "COMPLETED"]
    origin = {
        "id": restored,
        "restore_timestamp": STARTED + 100,
        "is_savepoint": False,
        "external_path": f"file:/data/checkpoints/chk-{restored}",
    }
    return {
        "counts": {
            "restored": int(restored is not None),
            "total": len(history) if total is None else total,
            "completed": len(done),
        },
        "summary": {"end_to_end_duration": {"min": 94 if done else 0}},
        "latest": {
            "completed": done[0] if done else None,
            "savepoint": None,
            "restored": None if restored is None else origin,
        },
        "history": list(history),
    }


def pictured(
    *jobs: dict[str, Any], checkpoints: dict[str, Any] | None = None, other: Mapping[str, Answer] | None = None
) -> dict[str, list[Answer]]:
    """The answers of a Flink 2.3.0 that runs these jobs, each with these statistics of its checkpoints. `other`: by path, others."""
    jobs = jobs or (listed(),)
    numbers = Answer(checkpoints or statistics(completed(2), completed(1)))
    interval = Answer({"mode": "exactly_once", "interval": 1000})
    answers = {
        "/overview": [Answer({"slots-total": 4, "slots-available": 1, "flink-version": "2.3.0"})],
        "/jobmanager/config": [Answer([{"key": "high-availability.cluster-id", "value": "/default"}])],
        "/taskmanagers": [
            Answer({"taskmanagers": [{"id": "tm-1", "path": "pekko.tcp://flink@10.0.0.7:6122/user/rpc/taskmanager_0"}]})
        ],
        "/applications/overview": [Answer({"applications": [{"name": "orders", "status": "RUNNING"}]})],
        "/jobs/overview": [Answer({"jobs": list(jobs)})],
    }
    for job in jobs:
        path = f"/jobs/{job['jid']}/checkpoints"
        answers |= {path: [numbers], f"{path}/config": [interval]}
        answers[f"/jobs/{job['jid']}/metrics?get=numRestarts"] = [Answer([{"id": "numRestarts", "value": "3"}])]
    return answers | {path: [answer] for path, answer in (other or {}).items()}
