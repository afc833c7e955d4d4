"""Sends one message and ends: the short-lived child process of every attempt to deliver.

One JSON line comes in on stdin: the arguments of `send`, or `{"urls": {destination: url}}` for `check`. One JSON line goes out on stdout:
what was returned. stdin stays open for as long as the parent wants an answer: when it closes, this process ends.

Only here is Apprise imported, and hardly anything of the sidecar is. No secret leaves this process but to the service that it belongs to.
"""

import logging
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from smtplib import SMTPRecipientsRefused, SMTPResponseException, SMTPServerDisconnected
from typing import Any, Final
from urllib.parse import quote, unquote, unquote_plus

from apprise import Apprise, AppriseAsset, NotifyBase, NotifyType, OverflowMode, plugins
from urllib3.exceptions import ConnectTimeoutError

from sidecar.answering import answer_once
from sidecar.sinks.notify.formatting import MessageFacts, formatted
from sidecar.sinks.notify.http_outcome import listening

MOST_CHARACTERS: Final = 200
"""Of a detail."""

_ASSET: Final = AppriseAsset(
    app_id="flink-ha-sidecar",
    app_desc="Flink leader changes",
    async_mode=False,
    http_redirects=False,  # an answer must not choose where the message goes
    service_timeout=0,  # the parent's limit is the one that counts: it ends the process
    storage_mode="memory",
)
# One notice is one message: what a service has no room for is cut off rather than refused for ever. The audit log has it all.
NotifyBase.overflow_mode = OverflowMode.TRUNCATE

_SERVICES: Final = "https://appriseit.com/services/"
_SCHEME: Final = re.compile(r"\s*([a-z0-9]{1,32})://", re.IGNORECASE)
_PERMANENT: Final = 500
"""From here on a mail server's answers are: no, and do not try again."""
_LOST: Final = (ConnectionResetError, BrokenPipeError, TimeoutError, HTTPException, SMTPServerDisconnected)


def send(
    url: str, title: str, body: str, notify_type: str, seconds: float, facts: MessageFacts = (), link: str | None = None
) -> dict[str, Any]:
    """Send one message once: `{"outcome": a value of Outcome, "detail": one line, "retry_after": seconds or None}`.

    The service may take `seconds` to answer. A connection that was made and then lost is `timed_out` too: the message may have arrived.
    What Apprise calls a success although nothing left this process is `not_sent`.
    """
    report = _Report(url)
    service = report.load()
    if isinstance(service, str):
        return {"outcome": "undeliverable", "detail": service, "retry_after": None}
    service.socket_read_timeout = seconds
    service.throttle = _do_not_wait  # type: ignore[method-assign]  # its pace cannot be set for the pauses that a plugin forces
    apprise = Apprise(asset=_ASSET)
    apprise.add(service)
    title, body, body_format = formatted(service, title, body, facts, link)
    with listening() as answer:
        delivered = apprise.notify(body, title, NotifyType(notify_type), body_format=body_format)
    if delivered and not answer.exchanges:  # a plugin calls it a success to do nothing
        what = f"{report.scheme}:// sends nothing for a message of the type {notify_type}"
        return {"outcome": "not_sent", "detail": what, "retry_after": None}
    if delivered:
        return {"outcome": "delivered", "detail": "", "retry_after": None}
    outcome = answer.outcome() or report.outcome()
    return {"outcome": outcome, "detail": report.reason(), "retry_after": answer.retry_after}


def check(urls: Mapping[str, str]) -> dict[str, str]:
    """One line for each destination with a URL that nothing can be sent to. Nothing is sent."""
    loaded = {destination: _Report(url).load() for destination, url in urls.items()}
    return {destination: problem for destination, problem in loaded.items() if isinstance(problem, str)}


class _Report(logging.Handler):
    """What becomes of one URL. Why something failed, Apprise tells only its log.

    Of DEBUG records, which may hold tokens and the message, nothing is kept but the exception that was being handled.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._host = ""
        self.scheme = ""
        """Of the service."""
        self._warnings: list[str] = []
        self._error: BaseException | None = None
        log = logging.getLogger("apprise")
        log.handlers = [self]
        log.propagate = False
        log.setLevel(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        self._error = sys.exception() or self._error
        if record.levelno >= logging.WARNING:
            self._warnings.append(record.getMessage())

    def load(self) -> NotifyBase | str:
        """The service that the URL names, or why there is none."""
        match = _SCHEME.match(self._url)
        if match is None:
            return f"not an Apprise URL: no scheme:// begins it, see {_SERVICES}"
        scheme = self.scheme = match[1].lower()
        service = _instantiate(scheme, self._url)
        if service is None and scheme not in plugins.N_MGR:
            return f"no service is called {scheme}://, see {_SERVICES}"
        if service is None:
            return f"{scheme}:// cannot be used: {self.reason()}"
        if "{host}" in " ".join(service.templates):
            self._host = service.host
        # The outbox tries again, and a failure is one: what the URL says about `retry` and `optional` does not count.
        service.retry, service.optional = 0, False
        if len(service) > 1:
            return f"names {len(service)} targets: give each a URL of its own, or one that fails repeats the message to the others"
        self._warnings, self._error = [], None
        return service

    def reason(self) -> str:
        """Why it failed, in one line; nothing of the URL is in it but the scheme, and the host where it is one."""
        said = self._warnings[0] if self._warnings else "Apprise gives no reason"
        if self._error is not None:
            cause = _chain(self._error)[-1]
            why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
            said += f" ({why})" if why not in said else ""
        line = " ".join(_pieces(self._url, self._host).sub("***", said).split())
        return "".join(char for char in line if char.isprintable())[:MOST_CHARACTERS]

    def outcome(self) -> str:
        """What it means, as a value of `Outcome`, as far as the exceptions tell."""
        chain = _chain(self._error)
        if any(code >= _PERMANENT for code in _smtp_codes(chain)):
            return "rejected"
        lost = any(isinstance(error, _LOST) for error in chain)
        unconnected = any(isinstance(error, ConnectTimeoutError) for error in chain)
        return "timed_out" if lost and not unconnected else "failed"


def _do_not_wait(*_: object, **__: object) -> None:
    """In place of a plugin's pauses: to wait is the outbox's."""


def _instantiate(scheme: str, url: str) -> NotifyBase | None:
    kind = _plugin(scheme)
    with suppress(Exception):  # a plugin may raise anything about a URL; Apprise then says what is wrong with it
        if kind and kind.enabled and (parsed := kind.parse_url(url.replace("/#", "/%23"))):
            return kind(**parsed, asset=_ASSET)
    with suppress(Exception):
        return Apprise.instantiate(url, asset=_ASSET)
    return None


def _plugin(scheme: str) -> type[NotifyBase] | None:
    """The plugin that declares the scheme, and no other is loaded: all of them take 10 MiB and 0.1 s more. None: it is not found so."""
    declared = re.compile(rb'^    (?:secure_)?protocol = "%s"$' % scheme.encode(), re.MULTILINE)
    folder = Path(plugins.__path__[0])
    files = (*folder.glob("*.py"), *folder.glob("*/base.py"))
    file = next((file for file in files if declared.search(file.read_bytes())), None)
    if file is None:
        return None
    module = import_module(f"apprise.plugins.{file.relative_to(folder).parts[0].removesuffix('.py')}")
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, NotifyBase)]
    return next((k for k in kinds if scheme in (vars(k).get("protocol"), vars(k).get("secure_protocol"))), None)


def _pieces(url: str, host: str) -> re.Pattern[str]:
    """Matches what stands in the URL, encoded or decoded, from four characters on; not its scheme, names of options, or `host`."""
    written = re.sub("([?&])[a-z]{1,12}=", r"\1", _SCHEME.sub("", url, count=1))
    texts = {written, unquote(written), unquote_plus(written)}
    for text in (written, *re.split(r"[/?&=:@]", written)):
        texts |= {text, unquote(text), unquote_plus(text), quote(unquote(text), safe="")}
    texts |= {word for text in texts for word in re.split(r"[^\w.~+-]+", text)}
    pieces = [re.escape(text) for text in texts if len(text) >= 4 and text.lower() != host.lower()]
    return re.compile("|".join([*sorted(pieces, key=len, reverse=True), "(?!)"]), re.IGNORECASE)


def _smtp_codes(chain: list[BaseException]) -> list[int]:
    """What a mail server answered."""
    codes = [error.smtp_code for error in chain if isinstance(error, SMTPResponseException)]
    refused = [error.recipients for error in chain if isinstance(error, SMTPRecipientsRefused)]
    return codes + [code for recipients in refused for code, _ in recipients.values()]


def _chain(error: BaseException | None) -> list[BaseException]:
    """The exception and what it came from, the first cause last."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _answer(**request: Any) -> object:
    return check(**request) if "urls" in request else send(**request)


if __name__ == "__main__":
    answer_once(_answer)
