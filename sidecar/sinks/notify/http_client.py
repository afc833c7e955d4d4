"""Requests of our own to a service: no redirects, bounded answers, time limits, and no secret in a reason; and how an
attempt's requests, those of Apprise too, were answered. Used only in the sender's child.

Proxies and CAs come from the environment, as for Apprise.
"""

import base64
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from http.client import HTTPException
from smtplib import SMTPServerDisconnected
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import requests
from requests import RequestException, Response
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, HTTPError

from sidecar.core.bounds import RECEIVER
from sidecar.net.endpoints import Alertmanager, Secret, Webhook
from sidecar.net.retry_after import asked_wait
from sidecar.sinks.notify.apprise_url import host_may_be_secret
from sidecar.sinks.notify.refusals import Refusal, refusal
from sidecar.sinks.notify.sender_protocol import Answer

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
        """True if the service asks to come back later."""
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


def exception_outcome(error: BaseException | None) -> str:
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


_CONNECT_SECONDS: Final = 4.0
_MOST_SHOWN: Final = 100
"""Characters of an answer's body in a reason."""
_MOST_SCRUBBED: Final = 16 << 10
"""Bytes of it that are looked at."""
_MOST_DETAIL: Final = 200


class Reply(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    date: str
    """The service's clock: the header `Date`."""


class Client:
    """Sends requests to one service. `secrets` are left out of every reason, and so is the URL but for its host."""

    def __init__(
        self,
        seconds: float,
        *,
        secrets: Iterable[str],
        headers: Mapping[str, str] = MappingProxyType({}),
        ca_file: str | None = None,
        certificate: tuple[str, str] | None = None,
    ) -> None:
        """`seconds`: how long the service may take to answer; `headers`: of every request; `certificate`: the files of our own and of its
        key.
        """
        self._seconds = seconds
        self._headers = headers
        self._secrets = [secret for secret in secrets if len(secret) > 3]
        self._ca_file = ca_file
        self._certificate = certificate

    def post_json(self, url: str, content: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> Reply | Answer:
        """Does as `send`; the body must not refuse it either: something in front of the service may have answered."""
        reply = self.send(url, content, {"Content-Type": "application/json", **headers})
        if isinstance(reply, Reply) and (refused := refusal(reply.body)):
            return Answer(refused.outcome, self.scrubbed(f"the answer refuses it: {refused.reason}"))
        return reply

    def send(
        self,
        url: str,
        content: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        most_bytes: int = RECEIVER.most_bytes,
    ) -> Reply | Answer:
        """The reply to a POST of `content`, without it to a GET, if the status says that the request was accepted; else how the attempt
        ended. It has the first `most_bytes` of the body.
        """
        host = "the service" if host_may_be_secret(url) else urlsplit(url).hostname
        with observing() as observed, requests.Session() as session:
            session.auth = lambda request: request  # else a .netrc would replace the header
            try:
                with session.request(
                    "GET" if content is None else "POST",
                    url,
                    data=content,
                    headers={
                        "User-Agent": "flink-ha-sidecar",
                        "Accept-Encoding": "identity",
                        **self._headers,
                        **headers,
                    },
                    timeout=(min(_CONNECT_SECONDS, self._seconds), self._seconds),
                    verify=self._ca_file or None,
                    cert=self._certificate,
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    body = response.raw.read(most_bytes, decode_content=False)  # a little gzip may be much
                    reply = Reply(response.status_code, body, response.headers.get("Date", ""))
            except (requests.RequestException, HTTPError, OSError) as error:
                cause = chain(error)[-1]
                why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
                answered = observed.status is not None  # the request was taken, and the answer broke off
                ended = observed.outcome() or ("timed_out" if answered else exception_outcome(error))
                return Answer(ended, self.scrubbed(f"{host} did not answer: {why}"))
        if (outcome := observed.outcome()) is None:
            return reply
        excerpt = self._hide_secrets(reply.body[:_MOST_SCRUBBED].decode(errors="replace"))[:_MOST_SHOWN]
        return Answer(outcome, self.scrubbed(f"{host} answered {reply.status} {excerpt}"), observed.retry_after)

    def scrubbed(self, text: str) -> str:
        """One bounded line without secrets."""
        return "".join(char for char in self._hide_secrets(text) if char.isprintable())[:_MOST_DETAIL]

    def _hide_secrets(self, text: str) -> str:
        """One line. A secret that was cut would stay in it."""
        forms = {form for secret in self._secrets for form in (secret, quote(secret, safe=""))}
        for secret in sorted(forms, key=len, reverse=True):
            text = re.sub(re.escape(secret), "***", text, flags=re.IGNORECASE)
        return " ".join(text.split())


class UnacceptedError(Exception):
    """A request of several was not accepted. `code`: the service's own."""

    def __init__(self, answer: Answer, code: str = "") -> None:
        super().__init__(answer.detail)
        self.answer = answer
        self.code = code


def accepted(reply: Reply | Answer) -> Reply:
    """The reply. Raises UnacceptedError."""
    if isinstance(reply, Answer):
        raise UnacceptedError(reply)
    return reply


def client_of(
    endpoint: Webhook | Alertmanager, seconds: float, *others: Secret | None, certificate: tuple[str, str] | None = None
) -> Client:
    """The client for an endpoint. `others`: secrets besides its URL and credentials."""
    headers = _authorization(endpoint)
    hidden = (endpoint.url, endpoint.bearer_token, endpoint.password, *others)
    # The credentials also as the header has them: an answer may repeat it.
    sent = (value.partition(" ")[2] for value in headers.values())
    secrets = [*(secret.reveal() for secret in hidden if secret), *sent]
    return Client(seconds, secrets=secrets, headers=headers, ca_file=endpoint.ca_file, certificate=certificate)


def _authorization(endpoint: Webhook | Alertmanager) -> dict[str, str]:
    """The header, if there are credentials."""
    if endpoint.bearer_token:
        return {"Authorization": f"Bearer {endpoint.bearer_token.reveal()}"}
    if endpoint.username and endpoint.password:
        user = f"{endpoint.username}:{endpoint.password.reveal()}"
        return {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
    return {}
