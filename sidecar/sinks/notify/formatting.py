"""Formats a message for a service. All of its texts are untrusted. Used only by the sender's child process."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from apprise import NotifyBase, NotifyFormat

MessageFacts = Sequence[tuple[str, str]]
"""Names and values, in order."""

# Read by programs, not shown in a chat: left unchanged.
_FOR_PROGRAMS: Final = frozenset({"json", "xml", "form"})
# What starts a mention, a link, an image or an element in some chat. An invisible character after it makes it plain text that can still
# be read and copied. Escaping would need each chat's own rules, and would be visible where a chat has none.
_MARKUP: Final = re.compile(r"@(?=\S)|<(?=[^\s\d=<>-])|\](?=[(\[:])")
_BREAK: Final = "\N{ZERO WIDTH SPACE}"
_LINK: Final = re.compile(r"https?://[!-~]{1,2000}", re.IGNORECASE)

_PAGE: Final = (
    '<div style="font-family: sans-serif; font-size: 14px; line-height: 1.4; max-width: 800px; overflow-wrap: anywhere">\n'
    '<h2 style="font-size: 17px; margin: 0 0 12px">{title}</h2>\n{paragraphs}</div>'
)
_PARAGRAPH: Final = '<p style="margin: 0 0 12px">{}</p>\n'
# Columns where a mail program supports widths; `name: value` lines elsewhere and in the plain-text part.
_FACT: Final = '<span style="display: inline-block; min-width: 120px; font-weight: bold">{}:</span> {}'


def formatted(
    service: NotifyBase, title: str, body: str, facts: MessageFacts, link: str | None
) -> tuple[str, str, NotifyFormat]:
    """Title, body and format: HTML for mail if it fits, else plain text.

    `link` is an http or https URL. No text can act as markup, mention anyone, or make a reader's program load anything.
    """
    if link and not _LINK.fullmatch(link):
        link = None
    mail = _is_mail(service)
    if mail and service.resolve_format(NotifyFormat.HTML) is NotifyFormat.HTML:  # `?format=text` is plain mail
        page = _html(title, body, facts, link)
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


def _html(title: str, body: str, facts: MessageFacts, link: str | None) -> str:
    parts = re.split(r"\n\s*\n", "\n".join(body.splitlines()).strip("\n"))
    paragraphs = [[escape(line) for line in part.split("\n")] for part in parts]
    paragraphs.append([_FACT.format(escape(name), escape(value)) for name, value in facts])
    if link:
        paragraphs.append([f'<a href="{escape(link)}">{escape(link)}</a>'])
    shown = "".join(_PARAGRAPH.format("<br>".join(lines)) for lines in paragraphs if lines)
    return _PAGE.format(title=escape(title), paragraphs=shown)
