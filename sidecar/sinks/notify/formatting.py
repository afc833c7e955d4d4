"""Formats a message for a service. All of its texts are untrusted. Used only by the sender's child process."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from apprise import NotifyBase, NotifyFormat

from sidecar.core.message import Message

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
    """Whether the service supports HTML but not Markdown. Chats have Markdown, or both."""
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
