"""What the REST server that leads says of a failover: from which checkpoints jobs were restored; and a thread dump of its JobManager.

All that it says is untrusted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sidecar.core.sanitize import clean
from sidecar.sinks.evidence.evidence_files import ABSENT, CAPTURED, FAILED, NotCapturedError, Shelf, piece
from sidecar.sinks.evidence.rest_client import RestClient, reason

TOTAL_SECONDS: Final = 40.0
"""For all questions together."""
PATIENCE_SECONDS: Final = 8.0
"""So long an election, and a job that is not restored yet, are waited for."""

_MOST_NAME: Final = 100
_JOB_ID: Final = re.compile("[0-9a-f]{32}")
_BEGINNING: Final = frozenset({"INITIALIZING", "CREATED", "RECONCILING"})
"""A job in one of these states may be restored yet."""
_OFF: Final = 1 << 62
"""From here on an interval of checkpoints, in milliseconds, means: none."""


def capture(
    address: str | None,
    jobs: Sequence[str],
    tls: Mapping[str, str | None] | None,
    seconds: float,
    shelf: Shelf | None,
) -> Iterator[dict[str, Any]]:
    """Its pieces, jobs first: people wait for them. Without a shelf no thread dump is asked for."""
    try:
        if address is None:
            raise NotCapturedError(ABSENT, "nobody leads the REST server")
        client = RestClient(address, tls, min(seconds, TOTAL_SECONDS), PATIENCE_SECONDS)
    except NotCapturedError as error:
        yield from (piece("job", job, error.outcome, str(error)) for job in jobs)
        if shelf:
            yield piece("thread_dump", address or "", error.outcome, str(error))
        return
    known = _Overview(client)
    for job in jobs:
        try:
            yield _job(client, known, job)
        except NotCapturedError as error:
            yield piece("job", job, error.outcome, f"{known.called(job)}: {error}")
    if shelf is None:
        return
    try:
        yield _thread_dump(client, address, shelf)
    except NotCapturedError as error:
        yield piece("thread_dump", address, error.outcome, str(error))


class _Overview:
    """Names and states of jobs, as far as Flink tells them."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._jobs: dict[str, tuple[str, str]] = {}
        self._asked = False

    def ask(self) -> None:
        """Once more."""
        self._asked = True
        try:
            listed = self._client.get("/jobs/overview")[1].get("jobs")
        except NotCapturedError:  # it goes without names
            return
        for job in listed if isinstance(listed, list) else []:
            if isinstance(job, dict):
                known = clean(job.get("name") or "", _MOST_NAME), clean(job.get("state") or "", 30)
                self._jobs[str(job.get("jid"))] = known

    def of(self, job: str) -> tuple[str, str]:
        """Its name and its state; empty where they are not known."""
        if not self._asked:
            self.ask()
        return self._jobs.get(job, ("", ""))

    def called(self, job: str) -> str:
        """What to call it, to people."""
        name = self._jobs.get(job, ("", ""))[0]
        return f"{name} ({clean(job, 8)})" if name else f"job {clean(job, 8)}"


def _job(client: RestClient, known: _Overview, job: str) -> dict[str, Any]:
    """From what it was restored. Raises NotCapturedError."""
    if not _JOB_ID.fullmatch(job):
        raise NotCapturedError(FAILED, "this is no id of a job")
    state = ""
    while True:
        try:
            status, answer = client.get(f"/jobs/{job}/checkpoints")
        except NotCapturedError:
            if state not in _BEGINNING or not client.is_out_of_time:
                raise
            break  # what was answered while there was time says more
        name, state = known.of(job)
        if status == 404:
            return _without_checkpoints(known, job, reason(answer), {"name": name or None, "state": state or None})
        restored = _latest_restored(answer)
        if restored or state not in _BEGINNING or not client.is_patient:
            break
        client.pause()
        known.ask()
    facts = {"name": name or None, "state": state or None}
    if restored:
        return _restored(known, job, restored, facts)
    if state in _BEGINNING:
        return piece("job", job, ABSENT, f"{known.called(job)}: not restored yet, it is {state}", **facts)
    if not _dict(answer.get("counts")).get("total") and _is_off(client, job):
        return piece("job", job, CAPTURED, f"{known.called(job)}: started without state: checkpointing is off", **facts)
    why = "started without state: no checkpoint was completed before"
    return piece("job", job, CAPTURED, f"{known.called(job)}: {why}", **facts)


def _latest_restored(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Empty: there is none. Raises NotCapturedError where Flink does not say so: nobody may be told of lost state for want of a word."""
    latest = _dict(answer.get("latest"))
    restored = latest.get("restored", ...)
    if restored is None:
        return {}
    if not isinstance(restored, dict) or not restored:
        raise NotCapturedError(FAILED, "Flink's answer cannot be read: latest.restored")
    return restored


def _restored(known: _Overview, job: str, restored: Mapping[str, Any], facts: dict[str, str | None]) -> dict[str, Any]:
    """Raises NotCapturedError."""
    number, at = restored.get("id"), restored.get("restore_timestamp")
    try:
        if not isinstance(number, int) or not isinstance(at, int):
            raise TypeError
        restored_at = datetime.fromtimestamp(at / 1000, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise NotCapturedError(FAILED, "Flink's answer cannot be read: latest.restored") from None
    is_savepoint = restored.get("is_savepoint") is True
    what = f"{'savepoint' if is_savepoint else 'checkpoint'} {clean(number, 20)}"
    return piece(
        "job",
        job,
        CAPTURED,
        f"{known.called(job)}: restored from {what} at {restored_at:%Y-%m-%dT%H:%M:%SZ}",
        restored_checkpoint_id=number,
        restored_at=f"{restored_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        restored_path=restored.get("external_path"),
        is_savepoint=str(is_savepoint).lower(),
        **facts,
    )


def _without_checkpoints(known: _Overview, job: str, why: str, facts: dict[str, str | None]) -> dict[str, Any]:
    """Flink's status 404 says either that it keeps no checkpoints of the job, or that it does not know the job."""
    if "not enabled" in why:
        return piece("job", job, CAPTURED, f"{known.called(job)}: started without state: checkpointing is off", **facts)
    return piece("job", job, ABSENT, f"{known.called(job)}: Flink does not know this job: {why}", **facts)


def _is_off(client: RestClient, job: str) -> bool:
    try:
        status, config = client.get(f"/jobs/{job}/checkpoints/config")
    except NotCapturedError:
        return False
    interval = config.get("interval")
    return status == 404 or (isinstance(interval, int) and interval >= _OFF)


def _thread_dump(client: RestClient, address: str, shelf: Shelf) -> dict[str, Any]:
    """Raises NotCapturedError."""
    status, answer = client.get("/jobmanager/thread-dump")
    if status == 404:
        raise NotCapturedError(ABSENT, "this Flink has no thread dump: 1.15 and newer have")
    threads = answer.get("threadInfos")
    if not isinstance(threads, list):
        raise NotCapturedError(FAILED, "Flink's answer cannot be read: threadInfos")
    text = "\n".join(str(_dict(thread).get("stringifiedThreadInfo", "?")) for thread in threads)
    return shelf.keep("thread_dump", 0, address, text, threads=len(threads))


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
