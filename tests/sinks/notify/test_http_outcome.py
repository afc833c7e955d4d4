"""Every result of an attempt has its outcome, and no answer can do harm. The sender runs in this process."""

import gzip
import math
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain, repeat
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from sidecar.core.bounds import RECEIVER
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.receivers import RawServer, send_by_url
from tests.lab.processes import free_port
from tests.lab.receivers import HttpReceiver, MailReceiver

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

AT_EIGHT = "Fri, 20 Nov 2026 08:00:00 GMT"
GARBAGE = (
    "soon",
    "-5",
    "1e3",
    "7,5",
    ".5",
    "7.5s",
    "1" * 5000,
    "\xff\xfe\x01",
    "Fri, 99 Nov 2026 99:99:99 GMT",
    "1 Jan 99999 00:00:00",
    "",
)


def send(url: str, seconds: float = 10.0) -> Answer:
    """One attempt."""
    return send_by_url(url, "title", "body", "warning", seconds)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "delivered"),
        (302, "rejected"),
        (400, "rejected"),
        (401, "rejected"),
        (403, "rejected"),
        (404, "rejected"),
        (408, "failed"),
        (410, "rejected"),
        (413, "rejected"),
        (425, "failed"),
        (429, "rate_limited"),
        (500, "timed_out"),
        (502, "timed_out"),
        (503, "failed"),
        (504, "timed_out"),
    ],
)
def test_a_status_determines_the_outcome(web: HttpReceiver, status: int, outcome: str) -> None:
    """Refused as it is, in trouble, too much, or, where something broke on the way or a gateway has waited in vain, perhaps arrived."""
    web.status = status
    answer = send(web.url)
    assert answer.outcome == outcome
    assert status == 200 or str(status) in answer.detail
    assert len(web.received) == 1


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "retry_after"),
    [
        (429, {"Retry-After": "17"}, "rate_limited", 17),
        (429, {"Retry-After": " 0 "}, "rate_limited", 0),
        (429, {"Retry-After": "64.57"}, "rate_limited", 65),
        (429, {"Retry-After": "0.001"}, "rate_limited", 1),
        (503, {"Retry-After": "7.0"}, "rate_limited", 7),
        (429, {"Retry-After": "Fri, 20 Nov 2026 08:00:42 GMT", "Date": AT_EIGHT}, "rate_limited", 42),
        (429, {"Retry-After": "Fri, 20 Nov 2026 07:00:00 GMT", "Date": AT_EIGHT}, "rate_limited", 0),
        (503, {"Retry-After": "30"}, "rate_limited", 30),
        (503, {"Retry-After": "soon"}, "failed", None),
        (500, {"Retry-After": "30"}, "timed_out", 30),
        *((429, {"Retry-After": garbage}, "rate_limited", None) for garbage in GARBAGE),
    ],
)
def test_a_service_determines_how_long_to_wait(
    status: int, headers: Mapping[str, str], outcome: str, retry_after: int | None
) -> None:
    """In seconds, or as a date by its own clock; an invalid value is ignored."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
    with RawServer(lambda: [b"HTTP/1.1 %d x\r\n%sContent-Length: 0\r\n\r\n" % (status, lines)]) as server:
        answer = send(server.url)
    assert (answer.outcome, answer.retry_after) == (outcome, retry_after)


def test_a_date_counts_from_the_date_of_the_answer(web: HttpReceiver) -> None:
    """Which is that of this machine here."""
    in_two_minutes = datetime.now(UTC) + timedelta(minutes=2)
    web.status, web.headers = 429, {"Retry-After": format_datetime(in_two_minutes, usegmt=True)}
    assert 60 <= (send(web.url).retry_after or 0) <= 120


@pytest.mark.timing
def test_a_rate_limited_attempt_is_not_repeated_by_the_plugin(
    monkeypatch: pytest.MonkeyPatch, web: HttpReceiver
) -> None:
    """Discord's plugin would wait and send once more, and the limit would not be reported."""
    from apprise.plugins.discord import NotifyDiscord

    monkeypatch.setattr(NotifyDiscord, "notify_url", f"http://{web.address}")
    web.status = 429
    web.headers = {"Retry-After": "40", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(time.time() + 40)}
    began = time.monotonic()

    answer = send("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js")

    assert (answer.outcome, answer.retry_after) == ("rate_limited", 40)
    assert len(web.received) == 1
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("status", "outcome"), [(421, "failed"), (451, "failed"), (452, "failed"), (550, "rejected"), (554, "rejected")]
)
def test_a_mail_server_says_whether_to_try_again(mail: MailReceiver, status: int, outcome: str) -> None:
    """4xx: later; 5xx: never, as it is. The server's own words are the reason."""
    mail.status = status
    answer = send(mail.url)
    assert answer.outcome == outcome
    assert str(status) in answer.detail


class Picky(MailReceiver):
    """A mail server without users."""

    async def handle_RCPT(self, _server: SMTP, *_: Any) -> str:  # noqa: N802  aiosmtpd calls it so
        """Refuses a recipient. Called by aiosmtpd."""
        return "550 5.1.1 no such user here"


def test_an_unknown_recipient_is_rejected() -> None:
    """Before any of the message was sent."""
    picky = Picky()
    picky.start()
    try:
        answer = send(picky.url)
    finally:
        picky.stop()
    assert answer.outcome == "rejected"
    assert "no such user here" in answer.detail
    assert picky.received == []


@pytest.mark.parametrize(
    "url",
    [
        "json://hooks.example.com/",
        "mailto://127.0.0.1?smtp=mx.example.com&mode=insecure&from=a@b.example&to=c@d.example",
    ],
)
def test_an_unknown_host_has_received_nothing(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """The name is not resolved: the attempt is retried."""

    def unknown(*_: object, **__: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    answer = send(url)

    assert answer.outcome == "failed"
    assert "Name or service not known" in answer.detail


def test_a_refused_connection_has_received_nothing() -> None:
    """A connection that was never made."""
    assert send(f"json://127.0.0.1:{free_port()}/").outcome == "failed"


def test_a_connection_that_is_reset_may_have_delivered() -> None:
    """The request was read, and then nothing came back."""
    with RawServer(list, reset=True) as server:
        assert send(server.url).outcome == "timed_out"
        assert server.requests == 1


def test_a_service_that_hangs_may_have_delivered(web: HttpReceiver) -> None:
    """It may or may not deliver the message."""
    web.answer_after = math.inf
    assert send(web.url, seconds=1.0).outcome == "timed_out"


@pytest.mark.parametrize(("status", "outcome"), [(200, "timed_out"), (404, "rejected")])
def test_an_answer_that_breaks_off_may_be_a_yes(status: int, outcome: str) -> None:
    """Its first line said yes; one that said no has said so."""
    with RawServer(lambda: [b"HTTP/1.1 %d x\r\nContent-Length: 100\r\n\r\nok" % status]) as server:
        assert send(server.url).outcome == outcome


def status_line(status: int) -> bytes:
    """How an answer begins."""
    return b"HTTP/1.1 %d x\r\n" % status


@pytest.mark.parametrize(
    ("head", "tail", "outcome"),
    [
        (status_line(500) + b"\r\n", lambda: repeat(b"x" * 65536), "timed_out"),
        (status_line(200) + b"\r\n", lambda: repeat(b"x" * 65536), "delivered"),
        (
            status_line(404) + b"Transfer-Encoding: chunked\r\n\r\n",
            lambda: repeat(b"40000000\r\nxxxxxxxxx"),
            "rejected",
        ),
        (status_line(500) + b"Content-Encoding: gzip\r\n\r\n", lambda: [gzip.compress(bytes(64 << 20))], "timed_out"),
        (status_line(200), lambda: repeat(b"X-Header: x\r\n"), "timed_out"),
        (status_line(200), lambda: repeat(b"x" * 65536), "timed_out"),
        (b"", lambda: repeat(b"\xff\x00"), "timed_out"),
        (status_line(429) + b"Retry-After: \xff\x00\x01\x80\r\nContent-Length: 0\r\n\r\n", list, "rate_limited"),
        (status_line(429) + b"Retry-After: 5\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", list, "rate_limited"),
        (status_line(999) + b"Content-Length: 0\r\n\r\n", list, "failed"),
    ],
    ids=[
        "endless body of a no",
        "endless body of a yes",
        "endless chunks",
        "64 MiB in 64 KiB",
        "endless headers",
        "an endless header",
        "no HTTP",
        "binary Retry-After",
        "two of them",
        "a status that is none",
    ],
)
def test_a_hostile_answer_does_no_harm(head: bytes, tail: Callable[[], Iterable[bytes]], outcome: str) -> None:
    """It is read as far as anybody needs it, and no further."""
    with RawServer(lambda: chain([head], tail())) as server:
        answer = send(server.url)
    assert (answer.outcome, answer.retry_after) == (outcome, None)
    assert server.sent < 16 * RECEIVER.most_bytes


def test_requests_after_an_attempt_are_not_observed(web: HttpReceiver) -> None:
    """`requests` works as before."""
    from requests.adapters import HTTPAdapter

    before = HTTPAdapter.send
    web.status = 500
    send(web.url)
    assert HTTPAdapter.send is before
