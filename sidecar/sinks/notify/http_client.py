"""Requests of our own to a service: no redirects, bounded answers, time limits, and no secret in a reason. Used only in the sender's child.

Proxies and CAs come from the environment, as for Apprise.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import requests
from urllib3.exceptions import HTTPError

from sidecar.core.bounds import RECEIVER
from sidecar.net.endpoints import Alertmanager, Secret, Webhook
from sidecar.sinks.notify.ambiguous_url import host_may_be_secret
from sidecar.sinks.notify.http_outcome import chain, observing, of_exception
from sidecar.sinks.notify.refusals import refusal
from sidecar.sinks.notify.sender_protocol import Answer

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

    def post(self, url: str, content: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> Reply | Answer:
        """The reply, if the status says that the request was accepted; else how the attempt ended."""
        return self._request("POST", url, content, headers, RECEIVER.most_bytes)

    def post_json(self, url: str, content: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> Reply | Answer:
        """As `post`; the body must not refuse it either: something in front of the service may have answered."""
        reply = self.post(url, content, {"Content-Type": "application/json", **headers})
        if isinstance(reply, Reply) and (refused := refusal(reply.body)):
            return Answer(refused.outcome, self.scrubbed(f"the answer refuses it: {refused.reason}"))
        return reply

    def get(self, url: str, most_bytes: int) -> Reply | Answer:
        """As `post`, with the first `most_bytes` of the body."""
        return self._request("GET", url, None, {}, most_bytes)

    def _request(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], most_bytes: int
    ) -> Reply | Answer:
        host = "the service" if host_may_be_secret(url) else urlsplit(url).hostname
        with observing() as observed:
            try:
                reply = self._exchange(method, url, content, headers, most_bytes)
            except (requests.RequestException, HTTPError, OSError) as error:
                cause = chain(error)[-1]
                why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
                answered = observed.status is not None  # the request was taken, and the answer broke off
                ended = observed.outcome() or ("timed_out" if answered else of_exception(error))
                return Answer(ended, self.scrubbed(f"{host} did not answer: {why}"))
        if (outcome := observed.outcome()) is None:
            return reply
        excerpt = self._without_secrets(reply.body[:_MOST_SCRUBBED].decode(errors="replace"))[:_MOST_SHOWN]
        return Answer(outcome, self.scrubbed(f"{host} answered {reply.status} {excerpt}"), observed.retry_after)

    def _exchange(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], most_bytes: int
    ) -> Reply:
        with requests.Session() as session:
            session.auth = _leave  # else a .netrc would replace the header
            with session.request(
                method,
                url,
                data=content,
                headers={"User-Agent": "flink-ha-sidecar", "Accept-Encoding": "identity", **self._headers, **headers},
                timeout=(min(_CONNECT_SECONDS, self._seconds), self._seconds),
                verify=self._ca_file or None,
                cert=self._certificate,
                allow_redirects=False,
                stream=True,
            ) as response:
                body = response.raw.read(most_bytes, decode_content=False)  # a little gzip may be much
                return Reply(response.status_code, body, response.headers.get("Date", ""))

    def scrubbed(self, text: str) -> str:
        """One bounded line without secrets."""
        return "".join(char for char in self._without_secrets(text) if char.isprintable())[:_MOST_DETAIL]

    def _without_secrets(self, text: str) -> str:
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
    endpoint: Webhook | Alertmanager,
    seconds: float,
    *others: Secret | None,
    certificate: tuple[str, str] | None = None,
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


def _leave(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
