"""How the HTTP requests of an attempt were answered, which Apprise does not report. Used only by the sender's child process."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from http.client import HTTPException
from smtplib import SMTPServerDisconnected
from typing import Any, Final

from requests import RequestException, Response
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError

from sidecar.core.bounds import RECEIVER
from sidecar.net.retry_after import asked_wait
from sidecar.sinks.notify.refusals import Refusal, refusal

_SENDING: Final = frozenset(
    {"socket.connect", "socket.sendto", "socket.sendmsg", "subprocess.Popen", "os.posix_spawn", "syslog.syslog"}
)
"""Python's audit events for whatever sends data: there is no hook that all plugins use."""

_ABSURD: Final = 1e9
"""Seconds."""


class ServiceResponse:
    """The newest answer's status, None if there is none, and for how many seconds it asks to wait, None if it does not."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.retry_after: int | None = None
        self._response: Response | None = None
        self.exchanges = 0
        """Connections, datagrams and programs started, by HTTP, SMTP or anything else, successful or not."""

    @property
    def rate_limited(self) -> bool:
        """Whether the service asks to come back later."""
        return self.status == HTTPStatus.TOO_MANY_REQUESTS or (
            self.status == HTTPStatus.SERVICE_UNAVAILABLE and self.retry_after is not None
        )

    def outcome(self) -> str | None:
        """The outcome, a value of `Outcome`, of a message that was not accepted. None: the answer does not determine it."""
        if self.status is None or self.status < HTTPStatus.MULTIPLE_CHOICES:
            return None
        if self.rate_limited:
            return "rate_limited"
        if self.status in _IN_DOUBT:
            return "timed_out"
        if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in _TEMPORARY:
            return "failed"
        return "rejected"

    def refusal(self, scheme: str) -> Refusal | None:
        """Why the newest answer, of the service with Apprise's `scheme`, refuses the message though its status accepts it."""
        consumed = getattr(self._response, "_content_consumed", False)  # else reading it may block
        if self._response is None or not consumed or self.outcome():
            return None
        return refusal(self._response.content, scheme)

    def note(self, response: Response | None) -> None:
        """Keep the newest answer; None: a request has started."""
        self._response = response
        self.status = response.status_code if response is not None else None
        self.retry_after = _wait_after(response) if response is not None else None


def of_exception(error: BaseException | None) -> str:
    """The outcome, a value of `Outcome`, of an attempt that ended with this: if a connection was lost, the message may have arrived."""
    causes = chain(error)
    lost = any(isinstance(cause, _LOST) for cause in causes)
    unconnected = any(isinstance(cause, ConnectTimeoutError) for cause in causes)
    return "timed_out" if lost and not unconnected else "failed"


def chain(error: BaseException | None) -> list[BaseException]:
    """The exception and its causes, the root cause last."""
    errors: list[BaseException] = []
    while error is not None and error not in errors:
        errors.append(error)
        error = error.__cause__ or error.__context__
    return errors


_LOST: Final = (ConnectionResetError, BrokenPipeError, TimeoutError, HTTPException, SMTPServerDisconnected, MemoryError)
_IN_DOUBT: Final = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""The service failed, before or after it accepted the message."""
_TEMPORARY: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY)


@contextmanager
def observing() -> Iterator[ServiceResponse]:
    """Observe what this process sends, and the answers to requests of the library `requests`.

    Once the service asks to come back later, further requests fail: some plugins would retry by themselves.
    """
    observed = ServiceResponse()
    _observing.append(observed)
    _add_hook()
    send = HTTPAdapter.send

    def noting(adapter: HTTPAdapter, *args: Any, **kwargs: Any) -> Response:
        if observed.rate_limited:
            raise RequestException("the service asked to come back later")
        observed.note(None)
        response = send(adapter, *args, **kwargs)
        observed.note(response)
        _bound(response)
        return response

    HTTPAdapter.send = noting  # type: ignore[method-assign, assignment]  # there is no hook that every plugin's requests pass
    try:
        yield observed
    finally:
        HTTPAdapter.send = send  # type: ignore[method-assign]  # as above
        _observing.remove(observed)


_observing: list[ServiceResponse] = []


@cache
def _add_hook() -> None:
    """Count what is sent. Once: Python keeps an audit hook until the process ends."""

    def happened(event: str, _arguments: object) -> None:
        if event in _SENDING:
            for observed in _observing:
                observed.exchanges += 1

    sys.addaudithook(happened)


def _bound(response: Response) -> None:
    """Limit the body."""
    stream = response.raw.stream

    def bounded(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        remaining = RECEIVER.most_bytes
        for part in stream(*args, **kwargs):
            yield part[:remaining]
            remaining -= len(part)
            if remaining <= 0:
                response.raw.close()
                return

    response.raw.stream = bounded


def _wait_after(response: Response) -> int | None:
    """For how many seconds it asks to wait, a fraction rounded up. None: it does not, or for longer than anybody means."""
    seconds = asked_wait(response.headers)
    return math.ceil(seconds) if seconds is not None and seconds < _ABSURD else None
