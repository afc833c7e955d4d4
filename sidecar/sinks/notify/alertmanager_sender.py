"""Posts alerts to an Alertmanager's API, version 2. Used only in the sender's child process.

The times of an alert are made here, when it is sent: an alert that waited for an Alertmanager still fires long enough.
"""

import os
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import requests
from msgspec import DecodeError, Struct, json
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from sidecar.core.sanitize import clean
from sidecar.endpoints import Alertmanager, Endpoint
from sidecar.sinks.notify.http_outcome import ServiceResponse
from sidecar.sinks.notify.message import Answer, FeedAlert, Message

MOST_IN_A_REQUEST: Final = 1000
MOST_BYTES: Final = 16 << 20
"""Of an answer."""
CLOCK_DIFFERENCE: Final = 30_000_000
"""Microseconds between its clock and ours beyond which its clock counts: by ours, an alert might have ended when it arrives."""

_ALERTS: Final = "/api/v2/alerts"
_OURS: Final = 'store=~"zookeeper|kubernetes"'
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Listed(Struct):
    """An alert, as the API lists it."""

    labels: dict[str, str]


class _Error(Struct):
    """An error of the API, where it is more than a text."""

    message: str


_LIST: Final = json.Decoder(list[_Listed])
_SAID: Final = json.Decoder(str | _Error)
_UNREADABLE: Final = (DecodeError, UnicodeDecodeError, RecursionError)


class _RefusedError(Exception):
    """The Alertmanager did not take a request."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.detail)
        self.answer = answer


def deliver(message: Message) -> Answer:
    """Post the alerts once. `not_sent`: there are none that the Alertmanager lacks."""
    assert isinstance(message.endpoint, Alertmanager)  # noqa: S101  as the child dispatches
    client = _Client(message.endpoint, message.seconds)
    try:
        alerts = [alert for alert in message.feed if alert.seen or _key(alert.labels) in client.active()]
        for place in range(0, len(alerts), MOST_IN_A_REQUEST):
            client.post(alerts[place : place + MOST_IN_A_REQUEST])
    except _RefusedError as failed:
        return failed.answer
    return Answer("delivered") if alerts else Answer("not_sent", "none of the alerts fires there any more")


def problem(endpoint: Endpoint) -> str | None:
    """None: the settings have checked it."""
    assert isinstance(endpoint, Alertmanager)  # noqa: S101  as the child dispatches
    return None


class _Session(requests.Session):
    """Follows no redirect, nor reads the body of one: an answer must not choose where the alerts go."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: there is none."""


class _Client:
    """Requests to one Alertmanager."""

    def __init__(self, endpoint: Alertmanager, seconds: float) -> None:
        self._endpoint = endpoint
        self._session = _Session()
        self._seconds = seconds
        self._ahead = 0
        """By how many microseconds its clock is ahead of ours, if that is more than CLOCK_DIFFERENCE."""
        self._active: set[frozenset[tuple[str, str]]] | None = None

    def active(self) -> set[frozenset[tuple[str, str]]]:
        """The labels of the alerts of sidecars that fire there now; asked once. Raises _RefusedError."""
        if self._active is None:
            _, body = self._exchange("GET", params={"filter": _OURS})
            try:
                self._active = {_key(alert.labels) for alert in _LIST.decode(body)}
            except _UNREADABLE:
                raise _RefusedError(Answer("failed", "its list of alerts cannot be read")) from None
        return self._active

    def post(self, alerts: Sequence[FeedAlert]) -> None:
        """Post alerts, again if that shows another clock. Raises _RefusedError."""
        for _ in range(2):
            response, _body = self._exchange("POST", json=[_posted(alert, _now() + self._ahead) for alert in alerts])
            ahead = _ahead(response.headers.get("Date", ""))
            if abs(ahead - self._ahead) <= CLOCK_DIFFERENCE:
                return
            self._ahead = ahead

    def _exchange(self, method: str, **request: Any) -> tuple[requests.Response, bytes]:
        endpoint, observed = self._endpoint, ServiceResponse()
        certificate, key = endpoint.certificate_file, endpoint.key_file
        try:
            response = self._session.request(
                method,
                endpoint.url.reveal() + _ALERTS,
                auth=self._authorized,
                timeout=self._seconds,
                verify=endpoint.ca_file or _authorities(),
                cert=(certificate, key) if certificate and key else None,
                stream=True,
                **request,
            )
            with response:
                observed.note(response)
                body: bytes = response.raw.read(MOST_BYTES, decode_content=True)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise _RefusedError(_lost(error)) from error
        if response.status_code == HTTPStatus.OK:
            return response, body
        outcome = observed.outcome() or "rejected"
        raise _RefusedError(Answer(outcome, _refusal(response.status_code, body), observed.retry_after))

    def _authorized(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """With our own credentials, never with those of a .netrc."""
        endpoint = self._endpoint
        if endpoint.username is not None and endpoint.password is not None:
            return requests.auth.HTTPBasicAuth(endpoint.username, endpoint.password.reveal())(request)
        if endpoint.bearer_token is not None:
            request.headers["Authorization"] = f"Bearer {endpoint.bearer_token.reveal()}"
        return request


def _posted(alert: FeedAlert, now: int) -> dict[str, Any]:
    """As the API takes it. An end before the beginning would be refused: clocks jump."""
    began = min(alert.began, now)
    return {
        "labels": alert.labels,
        "annotations": alert.annotations,
        "startsAt": _timestamp(began),
        "endsAt": _timestamp(now + alert.fires_for if alert.fires_for else max(min(alert.ended, now), began)),
        **({"generatorURL": alert.link} if alert.link else {}),
    }


def _authorities() -> str | bool:
    """The CAs of this system, unless the environment names others."""
    paths = ssl.get_default_verify_paths()
    return os.environ.get("REQUESTS_CA_BUNDLE") or paths.cafile or paths.capath or True


def _key(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def _now() -> int:
    return time.time_ns() // 1000


def _timestamp(micros: int) -> str:
    return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds")


def _ahead(date: str) -> int:
    """By how many microseconds a `Date` header is ahead of our clock; 0 for less than CLOCK_DIFFERENCE, or without a date."""
    try:
        theirs = parsedate_to_datetime(date[:40])
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0
    difference = (theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC)) - _EPOCH - timedelta(microseconds=_now())
    ahead = difference // timedelta(microseconds=1)
    return ahead if abs(ahead) > CLOCK_DIFFERENCE else 0


def _refusal(status: int, body: bytes) -> str:
    """The status and what the Alertmanager says about it."""
    try:
        said = _SAID.decode(body)
        text = said if isinstance(said, str) else said.message
    except _UNREADABLE:
        text = body[:1000].decode(errors="replace")
    shown = clean(" ".join(text.split()), 150)
    return f"HTTP {status}: {shown}" if shown else f"HTTP {status}"


def _lost(error: BaseException) -> Answer:
    """How a request ended without an answer. Nothing of the URL is in the detail."""
    causes = [*_causes(error)]
    unsent = (requests.ConnectTimeout, ConnectTimeoutError, NewConnectionError, requests.exceptions.SSLError)
    outcome = "failed" if any(isinstance(each, unsent) for each in causes) else "timed_out"
    if any(isinstance(each, requests.Timeout) for each in causes):
        return Answer(outcome, "no answer in time")
    why = getattr(causes[-1], "strerror", None) or type(causes[-1]).__name__
    return Answer(outcome, clean(f"the connection failed: {why}"))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and its causes, the root cause last."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        reason = getattr(error, "reason", None)
        yield error
        error = error.__cause__ or error.__context__ or (reason if isinstance(reason, BaseException) else None)
