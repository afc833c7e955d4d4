"""A client for Flink's REST server that waits for elections to end, and reads JSON objects."""

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    reason,
)
from sidecar.sinks.evidence.evidence_files import FAILED, REFUSED, NotCapturedError

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
        """Whether temporary failures are still retried."""
        return time.monotonic() + _RETRY_SECONDS < min(self._patient_until, self._end)

    @property
    def is_out_of_time(self) -> bool:
        """Whether no request is sent any more."""
        return time.monotonic() >= self._end

    def pause(self) -> None:
        """Wait before a retry."""
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
