"""Requests of our own to a service: no redirects, bounded answers, time limits, and no secret in a reason. Used only in the sender's child.

Proxies and CAs come from the environment, as for Apprise.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import requests
from urllib3.exceptions import HTTPError

from sidecar.sinks.notify.http_outcome import MOST_BYTES, chain, observing, of_exception
from sidecar.sinks.notify.message import Answer

_CONNECT_SECONDS: Final = 4.0
_MOST_SHOWN: Final = 100
"""Characters of an answer's body in a reason."""
_MOST_DETAIL: Final = 200


class Reply(NamedTuple):
    """An answer with a status below 300."""

    body: bytes


class Client:
    """Sends requests to one service. `secrets` are left out of every reason, and so is the URL but for its host."""

    def __init__(self, seconds: float, *, secrets: Iterable[str], ca_file: str | None = None) -> None:
        """`seconds`: how long the service may take to answer."""
        self._seconds = seconds
        self._secrets = [secret for secret in secrets if len(secret) > 3]
        self._ca_file = ca_file

    def post(self, url: str, content: bytes, headers: Mapping[str, str]) -> Reply | Answer:
        """The reply, if the status says that the request was accepted; else how the attempt ended."""
        host = urlsplit(url).hostname
        with observing() as observed:
            try:
                status, body = self._exchange(url, content, headers)
            except (requests.RequestException, HTTPError, OSError) as error:
                cause = chain(error)[-1]
                why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
                answered = observed.status is not None  # the request was taken, and the answer broke off
                known = observed.outcome() or ("timed_out" if answered else of_exception(error))
                return Answer(known, self.scrubbed(f"{host} did not answer: {why}"))
        if (outcome := observed.outcome()) is None:
            return Reply(body)
        shown = body[: 4 * _MOST_SHOWN].decode(errors="replace")[:_MOST_SHOWN]
        return Answer(outcome, self.scrubbed(f"{host} answered {status} {shown}"), observed.retry_after)

    def _exchange(self, url: str, content: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body."""
        with requests.Session() as session:
            session.auth = _leave  # else a .netrc would replace the header
            with session.post(
                url,
                data=content,
                headers={"User-Agent": "flink-ha-sidecar", "Accept-Encoding": "identity", **headers},
                timeout=(min(_CONNECT_SECONDS, self._seconds), self._seconds),
                verify=self._ca_file or None,
                allow_redirects=False,
                stream=True,
            ) as response:
                return response.status_code, response.raw.read(
                    MOST_BYTES, decode_content=False
                )  # a little gzip may be much

    def scrubbed(self, text: str) -> str:
        """One bounded line without secrets."""
        forms = {form for secret in self._secrets for form in (secret, quote(secret, safe=""))}
        for secret in sorted(forms, key=len, reverse=True):
            text = re.sub(re.escape(secret), "***", text, flags=re.IGNORECASE)
        return "".join(char for char in " ".join(text.split()) if char.isprintable())[:_MOST_DETAIL]


def basic(username: str, password: str) -> str:
    """The value of the header Authorization."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _leave(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
