"""What an attempt sent, and what was answered to its HTTP requests. Apprise keeps it to itself. For the sender's child process alone."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Final

from requests import RequestException, Response
from requests.adapters import HTTPAdapter

MOST_BYTES: Final = 1 << 20
"""Of a body. No service says as much; one that does is not listened to any longer."""

_REDIRECT: Final = 300
_REQUEST_TIMEOUT: Final = 408
_TOO_EARLY: Final = 425
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
_BAD_GATEWAY: Final = 502
_UNAVAILABLE: Final = 503
_GATEWAY_TIMEOUT: Final = 504

_SENDING: Final = frozenset(
    {"socket.connect", "socket.sendto", "socket.sendmsg", "subprocess.Popen", "os.posix_spawn", "syslog.syslog"}
)
"""Python's own names (audit events) for what every library that sends anything has to do: there is no hook that all plugins pass."""

_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_LONGEST_DATE: Final = 40


class Answer:
    """The newest answer: its status, None where there is none, and how many seconds it asks us to wait, None where it does not."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.retry_after: int | None = None
        self.exchanges = 0
        """How often anything was sent, or tried to be, by HTTP, SMTP or whatever else: each connection, datagram and program counts."""

    @property
    def rate_limited(self) -> bool:
        """Whether it tells us to come back later."""
        return self.status == _TOO_MANY_REQUESTS or (self.status == _UNAVAILABLE and self.retry_after is not None)

    def outcome(self) -> str | None:
        """What it means for a message that was not accepted, as a value of `Outcome`. None: it does not tell."""
        if self.status is None or self.status < _REDIRECT:
            return None
        if self.rate_limited:
            return "rate_limited"
        if self.status in (_SERVER_ERROR, _BAD_GATEWAY, _GATEWAY_TIMEOUT):
            return "timed_out"  # something broke, before or after the message was taken
        if self.status >= _SERVER_ERROR or self.status in (_REQUEST_TIMEOUT, _TOO_EARLY):
            return "failed"
        return "rejected"

    def note(self, response: Response | None) -> None:
        """This one is the newest; None: a request is under way."""
        self.status = response.status_code if response is not None else None
        self.retry_after = _retry_after(response.headers) if response is not None else None


@contextmanager
def listening() -> Iterator[Answer]:
    """Note what is sent meanwhile, and what is answered to whatever `requests` sends, in all of this process.

    Once we are told to come back later nothing more is sent: some plugins would knock again by themselves.
    """
    answer = Answer()
    _listeners.append(answer)
    _hear()
    send = HTTPAdapter.send

    def noting(adapter: HTTPAdapter, *args: Any, **kwargs: Any) -> Response:
        if answer.rate_limited:
            raise RequestException("told to come back later")
        answer.note(None)
        response = send(adapter, *args, **kwargs)
        answer.note(response)
        _bound(response)
        return response

    HTTPAdapter.send = noting  # type: ignore[method-assign, assignment]  # there is no hook that every plugin's requests pass
    try:
        yield answer
    finally:
        HTTPAdapter.send = send  # type: ignore[method-assign]  # as above
        _listeners.remove(answer)


_listeners: list[Answer] = []


@cache
def _hear() -> None:
    """Count what is sent, for whoever listens. Python keeps such a hook until the process ends: one is enough."""

    def happened(event: str, _arguments: object) -> None:
        if event in _SENDING:
            for answer in _listeners:
                answer.exchanges += 1

    sys.addaudithook(happened)


def _bound(response: Response) -> None:
    """Let no more be read of the body than MOST_BYTES."""
    stream = response.raw.stream

    def bounded(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        left = MOST_BYTES
        for part in stream(*args, **kwargs):
            yield part[:left]
            left -= len(part)
            if left <= 0:
                response.raw.close()
                return

    response.raw.stream = bounded


def _retry_after(headers: Mapping[str, str]) -> int | None:
    """In seconds, by the service's own clock where it tells a date; None for what cannot be read."""
    asked = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(asked):
        return int(asked)
    until = _date(asked)
    if until is None:
        return None
    now = _date(headers.get("Date", "").strip()) or datetime.now(UTC)
    return max(round((until - now).total_seconds()), 0)


def _date(text: str) -> datetime | None:
    if len(text) > _LONGEST_DATE:
        return None
    try:
        date = parsedate_to_datetime(text)
        return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
