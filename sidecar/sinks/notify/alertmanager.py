"""Posts alerts to an Alertmanager's API, version 2. Used only in the sender's child process.

The times of an alert are made here, when it is sent: an alert that waited for an Alertmanager still fires long enough.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import DecodeError, Struct, json

from sidecar.core.bounds import ALERTS_OF_ALERTMANAGER
from sidecar.core.message import FeedAlert, Message
from sidecar.core.moment import timestamp
from sidecar.net.endpoints import Alertmanager
from sidecar.net.retry_after import http_date
from sidecar.sinks.notify.http_client import UnacceptedError, accepted, client_of
from sidecar.sinks.notify.sender_protocol import Answer

MOST_IN_A_REQUEST: Final = 1000
CLOCK_DIFFERENCE: Final = 30_000_000
"""Microseconds between its clock and ours beyond which its clock counts: by ours, an alert might have ended when it arrives."""

_OURS: Final = urlencode({"filter": 'store=~"zookeeper|kubernetes"'})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Listed(Struct):
    """An alert, as the API lists it."""

    labels: dict[str, str]


_LIST: Final = json.Decoder(list[_Listed])


def deliver(message: Message, endpoint: Alertmanager, seconds: float) -> Answer:
    """Post the alerts once. `not_sent`: there are none that the Alertmanager lacks."""
    client = _Client(endpoint, seconds)
    try:
        alerts = [alert for alert in message.feed if alert.seen or _key(alert.labels) in client.active()]
        for place in range(0, len(alerts), MOST_IN_A_REQUEST):
            client.post(alerts[place : place + MOST_IN_A_REQUEST])
    except UnacceptedError as failed:
        return failed.answer
    return Answer("delivered") if alerts else Answer("not_sent", "none of the alerts fires there any more")


class _Client:
    """Requests to one Alertmanager."""

    def __init__(self, endpoint: Alertmanager, seconds: float) -> None:
        certificate, key = endpoint.certificate_file, endpoint.key_file
        self._client = client_of(endpoint, seconds, certificate=(certificate, key) if certificate and key else None)
        self._url = endpoint.url.reveal() + "/api/v2/alerts"
        self._ahead = 0
        """By how many microseconds its clock is ahead of ours, if that is more than CLOCK_DIFFERENCE."""
        self._active: set[frozenset[tuple[str, str]]] | None = None

    def active(self) -> set[frozenset[tuple[str, str]]]:
        """The labels of the alerts of sidecars that fire there now; asked once. Raises UnacceptedError."""
        if self._active is None:
            body = accepted(
                self._client.send(f"{self._url}?{_OURS}", most_bytes=ALERTS_OF_ALERTMANAGER.most_bytes)
            ).body
            try:
                self._active = {_key(alert.labels) for alert in _LIST.decode(body)}
            except (DecodeError, UnicodeDecodeError, RecursionError):
                raise UnacceptedError(Answer("failed", "its list of alerts cannot be read")) from None
        return self._active

    def post(self, alerts: Sequence[FeedAlert]) -> None:
        """Post alerts, again if that shows another clock. Raises UnacceptedError."""
        for _ in range(2):
            content = json.encode([_posted(alert, _now() + self._ahead) for alert in alerts])
            ahead = _ahead(accepted(self._client.post_json(self._url, content)).date)
            if abs(ahead - self._ahead) <= CLOCK_DIFFERENCE:
                return
            self._ahead = ahead


def _posted(alert: FeedAlert, now: int) -> dict[str, Any]:
    """The alert as the API takes it. An end before the beginning would be refused: clocks jump."""
    began = min(alert.began, now)
    return {
        "labels": alert.labels,
        "annotations": alert.annotations,
        "startsAt": timestamp(began),
        "endsAt": timestamp(now + alert.fires_for if alert.fires_for else max(min(alert.ended, now), began)),
        **({"generatorURL": alert.link} if alert.link else {}),
    }


def _key(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def _now() -> int:
    return time.time_ns() // 1000


def _ahead(date: str) -> int:
    """By how many microseconds a `Date` header is ahead of our clock; 0 for less than CLOCK_DIFFERENCE, or without a date."""
    theirs = http_date(date)
    if theirs is None:
        return 0
    ahead = (theirs - _EPOCH) // timedelta(microseconds=1) - _now()
    return ahead if abs(ahead) > CLOCK_DIFFERENCE else 0
