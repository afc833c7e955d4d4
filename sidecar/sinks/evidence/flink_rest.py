"""Evidence from the leading REST server: from which checkpoint each job was restored, and a thread dump of the JobManager.

All answers are untrusted. The client waits for elections to end.
"""

import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from sidecar.core.bounds import EVIDENCE_ANSWER
from sidecar.core.sanitize import clean
from sidecar.net.rest_client import (
    NotListeningError,
    RefusedAddressError,
    RestConnection,
    RestError,
    TooSlowError,
    is_off,
    reason,
)
from sidecar.sinks.evidence.evidence_files import (
    ABSENT,
    CAPTURED,
    FAILED,
    REFUSED,
    EvidenceFolder,
    NotCapturedError,
    evidence_item,
)

_RETRY_SECONDS: Final = 0.25
_ELECTING: Final = frozenset({500, 502, 503, 504})
"""Status codes during a leader election, or while a job's JobMaster starts."""


class PatientClient:
    """One server. For `patience` seconds it retries refused connections and elections; after `seconds` it sends no request."""

    def __init__(self, address: str, tls: Mapping[str, str | None] | None, seconds: float, patience: float) -> None:
        """`tls`: the fields of `TlsSettings`. Raises NotCapturedError if the address cannot be a REST server's."""
        with _not_captured():
            self._connection = RestConnection(address, partial(_context, tls or {}))
        self._end = time.monotonic() + seconds
        self._patient_until = time.monotonic() + patience
        self._problem: str | None = None
        """Why the last request failed."""

    @property
    def is_patient(self) -> bool:
        """True if temporary failures are still retried."""
        return time.monotonic() + _RETRY_SECONDS < min(self._patient_until, self._end)

    @property
    def is_out_of_time(self) -> bool:
        """True if no request is sent any more."""
        return time.monotonic() >= self._end

    def pause(self) -> None:
        time.sleep(_RETRY_SECONDS)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status, 200 or 404, and the JSON object. Raises NotCapturedError for everything else."""
        while True:
            try:
                status, content = self._get(path)
                if status in {200, 404}:
                    self._problem = None
                    return status, _object(content, status)
                problem = f"Flink's REST server answers with status {status}: {reason(_object(content, status).get('errors'))}"
                if status not in _ELECTING:
                    raise NotCapturedError(FAILED, problem)
            except NotListeningError as error:
                problem = str(error)
            except TooSlowError as error:
                # Once the time for all requests is over, an earlier failure explains more.
                problem = (self._problem if self.is_out_of_time else None) or str(error)
                raise NotCapturedError(FAILED, problem) from None
            self._problem = problem
            if not self.is_patient:
                raise NotCapturedError(FAILED, problem)
            self.pause()

    def _get(self, path: str) -> tuple[int, bytes]:
        """Raises NotCapturedError, NotListeningError, TooSlowError."""
        with _not_captured(but=(NotListeningError, TooSlowError)):
            try:
                return self._connection.get(
                    path, min(EVIDENCE_ANSWER.most_seconds, self._end - time.monotonic()), EVIDENCE_ANSWER.most_bytes
                )
            finally:
                self._connection.close()


@contextmanager
def _not_captured(but: tuple[type[RestError], ...] = ()) -> Iterator[None]:
    """Turns a RestError, but for these, into a NotCapturedError."""
    try:
        yield
    except RestError as error:
        if isinstance(error, but):
            raise
        outcome = REFUSED if isinstance(error, RefusedAddressError) else FAILED
        raise NotCapturedError(outcome, str(error)) from error


def _object(content: bytes, status: int) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise NotCapturedError(FAILED, f"not Flink's REST server: it answers with status {status} and no JSON object")
    return answer


def _context(tls: Mapping[str, str | None]) -> ssl.SSLContext:
    """The TLS context of `TlsSettings.context`, which this process does not import. Raises RestError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    file = tls.get("ca_file")
    try:
        if file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(file)
        if certificate := tls.get("certificate_file"):
            file = certificate
            # Without a password OpenSSL would ask the terminal for it, and wait.
            context.load_cert_chain(certificate, tls.get("key_file") or certificate, tls.get("key_password") or "")
    except (OSError, ValueError) as error:
        raise RestError(f"the TLS file {clean(file, 300)} cannot be used") from error
    return context


TOTAL_SECONDS: Final = 40.0
"""The time for all requests together."""
PATIENCE_SECONDS: Final = 8.0
"""The wait for an election to end and for a job to be restored."""

_MOST_NAME: Final = 100
_JOB_ID: Final = re.compile("[0-9a-f]{32}")
_STARTING: Final = frozenset({"INITIALIZING", "CREATED", "RECONCILING"})
"""States in which a job may still be restored."""
_OFF: Final = 1 << 62
"""A checkpoint interval in milliseconds from here on means that checkpointing is off."""


def capture(
    address: str | None,
    jobs: Sequence[str],
    tls: Mapping[str, str | None] | None,
    seconds: float,
    folder: EvidenceFolder | None,
) -> Iterator[dict[str, Any]]:
    """The items, jobs first because messages wait for them. Without a folder there is no thread dump."""
    try:
        if address is None:
            raise NotCapturedError(ABSENT, "the REST server has no leader")
        client = PatientClient(address, tls, min(seconds, TOTAL_SECONDS), PATIENCE_SECONDS)
    except NotCapturedError as error:
        yield from (evidence_item("job", job, error.outcome, str(error)) for job in jobs)
        if folder:
            yield evidence_item("thread_dump", address or "", error.outcome, str(error))
        return
    descriptions = _Jobs(client)
    for job in jobs:
        try:
            yield descriptions.restored(job)
        except NotCapturedError as error:
            yield evidence_item("job", job, error.outcome, f"{descriptions.label(job)}: {error}")
    if folder is None:
        return
    try:
        yield _thread_dump(client, address, folder)
    except NotCapturedError as error:
        yield evidence_item("thread_dump", address, error.outcome, str(error))


class _Jobs:
    """The jobs as Flink reports them."""

    def __init__(self, client: PatientClient) -> None:
        self._client = client
        self._overview: dict[str, tuple[str, str]] | None = None
        """Name and state by job; None: not requested yet."""

    def label(self, job: str) -> str:
        """The job's name, if known, and the beginning of its id."""
        name, _ = (self._overview or {}).get(job, ("", ""))
        return f"{name} ({clean(job, 8)})" if name else f"job {clean(job, 8)}"

    def restored(self, job: str) -> dict[str, Any]:
        """The checkpoint from which the job was restored; waits while the job starts. Raises NotCapturedError."""
        if not _JOB_ID.fullmatch(job):
            raise NotCapturedError(FAILED, "not a job id")
        name = state = ""
        while True:
            try:
                status, answer = self._client.get(f"/jobs/{job}/checkpoints")
            except NotCapturedError:
                if state not in _STARTING or not self._client.is_out_of_time:
                    raise
                break  # the previous answer explains more
            if self._overview is None:
                self._refresh()
            name, state = (self._overview or {}).get(job, ("", ""))
            if status == 404 or _latest_restored(answer) or state not in _STARTING or not self._client.is_patient:
                break
            self._client.pause()
            self._refresh()
        outcome, text, attributes = self._explained(job, status, answer, state)
        text = f"{self.label(job)}: {text}"
        return evidence_item("job", job, outcome, text, **attributes, name=name or None, state=state or None)

    def _explained(
        self, job: str, status: int, answer: Mapping[str, Any], state: str
    ) -> tuple[str, str, dict[str, object]]:
        """Outcome, text and attributes. Raises NotCapturedError."""
        off = CAPTURED, "started without state: checkpointing is off", dict[str, object]()
        if status == 404:  # Flink keeps no checkpoints of the job, or does not know it
            why = reason(answer.get("errors"))
            return off if is_off(why) else (ABSENT, f"Flink does not know this job: {why}", {})
        if restored := _latest_restored(answer):
            return CAPTURED, *_described(restored)
        if state in _STARTING:
            return ABSENT, f"not restored yet, it is {state}", {}
        if not _dict(answer.get("counts")).get("total") and self._is_off(job):
            return off
        return CAPTURED, "started without state: no checkpoint was restored", {}

    def _is_off(self, job: str) -> bool:
        try:
            status, config = self._client.get(f"/jobs/{job}/checkpoints/config")
        except NotCapturedError:
            return False
        interval = config.get("interval")
        return status == 404 or (isinstance(interval, int) and interval >= _OFF)

    def _refresh(self) -> None:
        """Read names and states again. A failure keeps those that are known."""
        self._overview = self._overview or {}
        with suppress(NotCapturedError):
            jobs = self._client.get("/jobs/overview")[1].get("jobs")
            for job in filter(None, map(_dict, jobs if isinstance(jobs, list) else [])):
                name_and_state = clean(job.get("name") or "", _MOST_NAME), clean(job.get("state") or "", 30)
                self._overview[str(job.get("jid"))] = name_and_state


def _latest_restored(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Empty: none. Raises NotCapturedError unless Flink says so explicitly: lost state is never reported by mistake."""
    restored = _dict(answer.get("latest")).get("restored", ...)
    if restored is None:
        return {}
    if not isinstance(restored, dict) or not restored:
        raise NotCapturedError(FAILED, "Flink's answer cannot be read: latest.restored")
    return restored


def _described(restored: Mapping[str, Any]) -> tuple[str, dict[str, object]]:
    """Text and attributes. Raises NotCapturedError."""
    number, at = restored.get("id"), restored.get("restore_timestamp")
    try:
        if not isinstance(number, int) or not isinstance(at, int):
            raise TypeError
        restored_at = datetime.fromtimestamp(at / 1000, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise NotCapturedError(FAILED, "Flink's answer cannot be read: latest.restored") from None
    is_savepoint = restored.get("is_savepoint") is True
    snapshot = f"{'savepoint' if is_savepoint else 'checkpoint'} {clean(number, 20)}"
    return f"restored from {snapshot} at {restored_at:%Y-%m-%dT%H:%M:%SZ}", {
        "restored_checkpoint_id": number,
        "restored_at": f"{restored_at:%Y-%m-%dT%H:%M:%S.%fZ}",
        "restored_path": restored.get("external_path"),
        "is_savepoint": str(is_savepoint).lower(),
    }


def _thread_dump(client: PatientClient, address: str, folder: EvidenceFolder) -> dict[str, Any]:
    """Raises NotCapturedError."""
    status, answer = client.get("/jobmanager/thread-dump")
    if status == 404:
        raise NotCapturedError(ABSENT, "this Flink has no thread dump over REST: 1.15 and newer have")
    threads = answer.get("threadInfos")
    if not isinstance(threads, list):
        raise NotCapturedError(FAILED, "Flink's answer cannot be read: threadInfos")
    text = "\n".join(str(_dict(thread).get("stringifiedThreadInfo", "?")) for thread in threads)
    return folder.save("thread_dump", 0, address, text, threads=len(threads))


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
