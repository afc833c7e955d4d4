"""Formats a message for a service and sends it through Apprise. The only importer of Apprise, used only in the sender's child process.

All texts of a message are untrusted. A secret leaves this process only to the service it belongs to.
"""

import logging
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from html import escape
from importlib import import_module
from inspect import getsource
from pathlib import Path
from smtplib import SMTPRecipientsRefused, SMTPResponseException
from typing import Any, Final
from urllib.parse import quote, unquote, unquote_plus

from apprise import Apprise, AppriseAsset, NotifyBase, NotifyFormat, NotifyType, OverflowMode, plugins

from sidecar.core.message import Message
from sidecar.net.endpoints import AppriseUrl
from sidecar.sinks.notify import apprise_plugins
from sidecar.sinks.notify.apprise_url import ambiguity, cut_password, host_may_be_secret, instead
from sidecar.sinks.notify.http_client import chain, exception_outcome, observing
from sidecar.sinks.notify.sender_protocol import Answer

MessageFacts = Sequence[tuple[str, str]]
"""Names and values, in order."""

# Read by programs, not shown in a chat: left unchanged.
_FOR_PROGRAMS: Final = frozenset({"json", "xml", "form"})
# What starts a mention, a link, an image or an element in some chat. An invisible character after it makes it plain text that can still
# be read and copied. Escaping would need each chat's own rules, and would be visible where a chat has none.
_MARKUP: Final = re.compile(r"@(?=\S)|<(?=[^\s\d=<>-])|\](?=[(\[:])")
_BREAK: Final = "\N{ZERO WIDTH SPACE}"
_LINK: Final = re.compile(r"https?://[!-~]{1,2000}", re.IGNORECASE)

# Without a background or a text colour of its own, a page is as readable in a dark mail program as in a light one. Only the label and the
# bar have a colour, with white text on it. Widths give way on a phone.
_PAGE: Final = (
    '<div style="font-family: sans-serif; font-size: 15px; line-height: 1.5; max-width: 720px; overflow-wrap: anywhere; '
    'border-left: 4px solid {colour}; padding: 4px 0 4px 16px">\n'
    '<h2 style="font-size: 18px; line-height: 1.35; margin: 0 0 16px">{title}</h2>\n{paragraphs}</div>'
)
_LABEL: Final = (
    '<span style="background: {colour}; color: #ffffff; font-size: 12px; letter-spacing: 0.5px; padding: 3px 8px; '
    'border-radius: 4px; vertical-align: 2px">{label}</span> {title}'
)
_LABELLED: Final = re.compile(r"\[([A-Z_ ]{2,21})\] (.*)", re.DOTALL)
_COLOURS: Final = {"red": "#b3261e", "amber": "#9a5b00", "grey": "#5f6368", "blue": "#1f5fa8", "green": "#1e7a3c"}
_PARAGRAPH: Final = '<p style="margin: 0 0 14px">{}</p>\n'
# Columns where a mail program supports widths; `name: value` lines elsewhere and in the plain-text part.
_FACT: Final = '<span style="display: inline-block; min-width: 110px; opacity: 0.7">{}:</span> {}'


def formatted(service: NotifyBase, message: Message) -> tuple[str, str, NotifyFormat]:
    """Title, body and format: HTML for mail if it fits, else plain text.

    The message's link is an http or https URL. No text can act as markup, mention anyone, or make a reader's program load anything.
    """
    title, body, facts, link = message.title, message.body, message.facts, message.link
    if link and not _LINK.fullmatch(link):
        link = None
    mail = _is_mail(service)
    if mail and service.resolve_format(NotifyFormat.HTML) is NotifyFormat.HTML:  # `?format=text` is plain mail
        page = _html(title, body, facts, link, _COLOURS[message.shown[0]])
        if len(page) <= service.body_maxlen:
            return title, page, NotifyFormat.HTML
    listed = "\n".join(f"{name}: {value}" for name, value in facts)
    text = "\n\n".join(part for part in (body, listed) if part)
    if not mail and str(service.protocol) not in _FOR_PROGRAMS:
        title, text = (_MARKUP.sub(rf"\g<0>{_BREAK}", part) for part in (title, text))
    return title, f"{text}\n\n{link}" if link else text, NotifyFormat.TEXT


def _is_mail(service: NotifyBase) -> bool:
    """True if the service supports HTML but not Markdown. Chats have Markdown, or both."""
    declared: Any = service.notify_format  # one, or several
    formats = declared if isinstance(declared, tuple) else (declared,)
    return NotifyFormat.HTML in formats and NotifyFormat.MARKDOWN not in formats


def _html(title: str, body: str, facts: MessageFacts, link: str | None, colour: str) -> str:
    parts = re.split(r"\n\s*\n", "\n".join(body.splitlines()).strip("\n"))
    paragraphs = [[escape(line) for line in part.split("\n")] for part in parts]
    paragraphs.append([_FACT.format(escape(name), escape(value)) for name, value in facts])
    if link:
        paragraphs.append([f'<a href="{escape(link)}">{escape(link)}</a>'])
    html = "".join(_PARAGRAPH.format("<br>".join(lines)) for lines in paragraphs if lines)
    label, rest = match.groups() if (match := _LABELLED.fullmatch(title)) else ("", title)
    heading = _LABEL.format(colour=colour, label=label, title=escape(rest)) if label else escape(rest)
    return _PAGE.format(colour=colour, title=heading, paragraphs=html)


MOST_CHARACTERS: Final = 200
"""Characters of a detail."""

_ASSET: Final = AppriseAsset(
    app_id="flink-ha-sidecar",
    app_desc="Flink leader changes",
    async_mode=False,
    http_redirects=False,  # an answer must not choose where the message goes
    service_timeout=0,  # the parent's limit is the one that counts: it ends the process
    storage_mode="memory",
)
# A notification is one message: text beyond a service's limit is cut off, not refused. The audit log has all of it.
NotifyBase.overflow_mode = OverflowMode.TRUNCATE

_BY_SEVERITY: Final = {"info": "info", "warning": "warning", "critical": "failure"}
_SERVICES: Final = "https://appriseit.com/services/"
_BASE_ARGS: Final = ("tag", "tags", "redirect", "schema")
_OPTION: Final = re.compile(r"[a-z][a-z_]{0,30}")
_NATIVE_OPTION: Final = re.compile(r"[A-Za-z][A-Za-z_-]{0,30}")
_BY_VARIABLE: Final = re.compile(r"qsd[\"']\]\[\s*\w+\s*\]")
_OPTION_ENDS: Final = re.compile(r"[&;]")
_PASSED_ON: Final = ("+", "-", ":")
"""The start of names of values that a plugin passes on."""
_SCHEME: Final = re.compile(r"\s*([a-z0-9]{1,32})://", re.IGNORECASE)
_PERMANENT: Final = 500
"""SMTP codes from here on are permanent refusals."""


def deliver(message: Message, endpoint: AppriseUrl, seconds: float) -> Answer:
    """Send one message once.

    The service may take `seconds` to answer. A connection lost after it was made is `timed_out`: the message may have arrived.
    A success of Apprise without any traffic is `not_sent`. An answer that refuses the message, with any status, is no delivery.
    """
    report = _Report(endpoint.url.reveal())
    service = report.load()
    if isinstance(service, str):
        return Answer("undeliverable", service)
    if why := apprise_plugins.unsent(report.scheme, message):
        return Answer("not_sent", why)
    service.socket_read_timeout = seconds
    service.throttle = lambda *_, **__: None  # type: ignore[method-assign]  # the outbox waits instead; the rate cannot be set where a plugin forces a pause
    apprise_plugins.prepare(report.scheme, service, message)
    with (
        apprise_plugins.threaded(report.scheme, service, message),
        apprise_plugins.bounded_replies(),
        observing() as observed,
    ):
        delivered = _notify(report.scheme, service, message)
    if delivered and not observed.exchanges:
        return Answer(
            "not_sent",
            f"{report.scheme}:// sends nothing for a message of the type {_kind(report.scheme, message).value}",
        )
    if refusal := observed.refusal(report.scheme):
        detail = f"{report.scheme}:// answered with {observed.status}, but refused: {refusal.reason}"
        return Answer(refusal.outcome, report.scrubbed(detail), observed.retry_after)
    if delivered:
        return Answer("delivered")
    outcome = observed.outcome() or report.outcome()
    return Answer(outcome, report.reason(), observed.retry_after)


def _notify(scheme: str, service: NotifyBase, message: Message) -> bool:
    """True if the service accepted the message."""
    apprise = Apprise(asset=_ASSET)
    apprise.add(service)
    title, body, body_format = formatted(service, message)
    if apprise_plugins.plugin_sends(scheme, message) and not apprise.notify(
        body, title, _kind(scheme, message), body_format=body_format
    ):
        return False
    return apprise_plugins.follow_up(scheme, service, message, f"{title}\n\n{body}")


def _kind(scheme: str, message: Message) -> NotifyType:
    """Services that keep incidents close them at a success; to a person it is one only if the status is OK."""
    if scheme in apprise_plugins.KEYS:
        return NotifyType.SUCCESS if message.reason == "RESOLVED" else NotifyType(_BY_SEVERITY[message.severity])
    return NotifyType(message.shown[1])


def problem(endpoint: AppriseUrl) -> str | None:
    """Why nothing can be sent to the URL, or which of its options the service does not have: one line. Sends nothing."""
    report = _Report(url := endpoint.url.reveal())
    loaded = report.load()
    if isinstance(loaded, str):
        return loaded
    mistake = _option_mistake(url, loaded)
    return mistake and f"{report.scheme}:// {mistake}: see {_SERVICES}{report.scheme}/"


def native(url: str) -> str:
    """Apprise's scheme of the service that gives out such URLs; empty: of none."""
    with suppress(Exception):  # a plugin may raise anything
        return str((plugins.url_to_dict(url) or {}).get("schema", ""))  # type: ignore[no-untyped-call]
    return ""


def _option_mistake(url: str, service: NotifyBase) -> str | None:
    """The first part of the query that is no option of the service, which Apprise would ignore. It may be a part of a secret."""
    options = {*service.template_args, *_BASE_ARGS}
    kinds = [kind for kind in type(service).__mro__ if kind.__module__.startswith("apprise.")]
    sources = [Path(sys.modules[kind.__module__].__file__ or "").read_text() for kind in kinds]
    native = url.lower().lstrip().startswith(("http://", "https://"))
    own = getsource(type(service).parse_native_url) if native else ""
    free_text = True
    for place, part in enumerate(_OPTION_ENDS.split(url.partition("?")[2]), 1):
        option, equals, value = part.partition("=")
        name = unquote(option).strip().lower()
        plain = equals and (_NATIVE_OPTION if native else _OPTION).fullmatch(option)
        close = get_close_matches(name, sorted(options), 1) if plain else []
        if not part or name[:1] in _PASSED_ON or name in options or _is_read(name, sources):
            free_text = name not in NotifyBase.template_args
            continue
        if native and value:  # of a service's own URL, Apprise also takes what it finds by itself, or sends in any case
            if f"{name}=" in own or (_is_quoted(name, sources) and _is_quoted(unquote(value), sources)):
                continue
        elif not close and _is_quoted(name, sources):
            continue
        if close:
            return f"has no option {option}: write {close[0]}=… if that is meant, or remove it"
        if native and value:
            return f"does not pass on number {place} of its options: remove it"
        if not native and (equals or free_text):  # else it cannot be the rest of a value
            return f"has no such option as number {place} of its options (within a value, write & as %26 and ; as %3B)"
    return None


def _is_read(name: str, sources: list[str]) -> bool:
    """True if a plugin looks the option up in the query of a URL: by its name, or by a variable, which may have any quoted name."""
    quoted = rf"[\"']{re.escape(name)}[\"']"
    looked_up = rf"qsd[\"']?\]?(?:\[|\.(?:get|pop)\()\s*{quoted}"
    return any(
        re.search(looked_up, source) or (_BY_VARIABLE.search(source) and _is_quoted(name, [source]))
        for source in sources
    )


def _is_quoted(text: str, sources: list[str]) -> bool:
    quoted = re.compile(rf"[\"']{re.escape(text)}[\"']{'' if len(text) > 1 else ' in '}")
    return any(quoted.search(source) for source in sources)


class _Report(logging.Handler):
    """Loads one URL and collects why sending failed, which Apprise only logs.

    DEBUG records may hold tokens and the message: only the exception being handled is kept of them.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._host = ""
        self.scheme = ""
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
        if why := ambiguity(self._url):
            return f"{scheme}:// {why}"
        service = _instantiate(scheme, self._url)
        if scheme in {"http", "https"}:
            self.scheme = native(self._url) or scheme
        if service is None and (why := instead(self._url)):
            return f"{scheme}:// {why}: see {_SERVICES}"
        if service is None and scheme not in plugins.N_MGR:
            return f"no service is called {scheme}://, see {_SERVICES}"
        if service is None:
            return f"{scheme}:// cannot be used: {self.reason()}"
        return self._unusable(service) or service

    def _unusable(self, service: NotifyBase) -> str | None:
        """Why the service cannot be used as it was loaded; None: it can, and is prepared."""
        if why := cut_password(self._url, service.password):
            return f"{self.scheme}:// {why}"
        if "{host}" in " ".join(service.templates) and not host_may_be_secret(self._url):
            self._host = service.host
        # The outbox retries, and a failure must be reported: override `retry` and `optional` of the URL.
        service.retry, service.optional = 0, False
        if len(service) > 1:
            return f"names {len(service)} targets: give each a URL of its own, or one that fails repeats the message to the others"
        self._warnings, self._error = [], None
        return None

    def reason(self) -> str:
        """Why sending failed, in one line. Of the URL it holds only the scheme, and the host if the service has one."""
        if isinstance(self._error, MemoryError):
            return "the sender ran out of memory: what the service answers is too large"
        reason = self._warnings[0] if self._warnings else "Apprise gives no reason"
        if self._error is not None:
            cause = chain(self._error)[-1]
            why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
            reason += f" ({why})" if why not in reason else ""
        return self.scrubbed(reason)

    def scrubbed(self, text: str) -> str:
        """One line without the parts of the URL."""
        line = " ".join(_url_parts(self._url, self._host).sub("***", text).split())
        return "".join(char for char in line if char.isprintable())[:MOST_CHARACTERS]

    def outcome(self) -> str:
        """A value of `Outcome`, by the exceptions."""
        if any(code >= _PERMANENT for code in _smtp_codes(chain(self._error))):
            return "rejected"
        return exception_outcome(self._error)


def _instantiate(scheme: str, url: str) -> NotifyBase | None:
    kind = _plugin(scheme)
    with suppress(Exception):  # a plugin may raise anything; Apprise below then logs what is wrong
        if kind and kind.enabled and (parsed := kind.parse_url(url.replace("/#", "/%23"))):
            return kind(**parsed, asset=_ASSET)
    with suppress(Exception):
        return Apprise.instantiate(url, asset=_ASSET)
    return None


def _plugin(scheme: str) -> type[NotifyBase] | None:
    """The plugin that declares the scheme, None if not found. Importing all plugins would take 10 MiB and 0.1 s more."""
    declared = re.compile(rb'^    (?:secure_)?protocol = "%s"$' % scheme.encode(), re.MULTILINE)
    folder = Path(plugins.__path__[0])
    files = (*folder.glob("*.py"), *folder.glob("*/base.py"))
    file = next((file for file in files if declared.search(file.read_bytes())), None)
    if file is None:
        return None
    module = import_module(f"apprise.plugins.{file.relative_to(folder).parts[0].removesuffix('.py')}")
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, NotifyBase)]
    return next((k for k in kinds if scheme in (vars(k).get("protocol"), vars(k).get("secure_protocol"))), None)


def _url_parts(url: str, host: str) -> re.Pattern[str]:
    """Matches every part of the URL of four characters or more, encoded or decoded; not the scheme, option names, or `host`."""
    written = re.sub("([?&])[a-z]{1,12}=", r"\1", _SCHEME.sub("", url, count=1))
    texts = {written, unquote(written), unquote_plus(written)}
    for text in (written, *re.split(r"[/?&=:@]", written)):
        texts |= {text, unquote(text), unquote_plus(text), quote(unquote(text), safe="")}
    texts |= {word for text in texts for word in re.split(r"[^\w.~+-]+", text)}
    parts = [re.escape(text) for text in texts if len(text) >= 4 and text.lower() != host.lower()]
    return re.compile("|".join([*sorted(parts, key=len, reverse=True), "(?!)"]), re.IGNORECASE)


def _smtp_codes(errors: list[BaseException]) -> list[int]:
    """The codes of a mail server's answers."""
    codes = [error.smtp_code for error in errors if isinstance(error, SMTPResponseException)]
    refused = [error.recipients for error in errors if isinstance(error, SMTPRecipientsRefused)]
    return codes + [code for recipients in refused for code, _ in recipients.values()]
