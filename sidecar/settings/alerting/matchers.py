"""Matchers as text: `severity="critical"`, `cluster_id=~"orders-.*"`, several with commas between them, in Alertmanager's grammar."""

import re
import warnings
from collections.abc import Collection
from typing import Final

from sidecar.core.policy.labels import Matcher, Operator
from sidecar.settings.file.errors import expected
from sidecar.settings.file.value import Given

_MATCHER: Final = re.compile(
    r'\s*(?P<label>[A-Za-z_][A-Za-z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^",\s{}]*))\s*(?P<end>,|$)'
)
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}


def matchers(given: Given, labels: Collection[str]) -> list[Matcher]:
    """The matchers that a value holds. Raises SettingsError: it is no matcher, its pattern is wrong, or no alert has the label."""
    text = given.text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    found: list[Matcher] = []
    place = 0
    while place < len(text.rstrip()) or not found:
        match = _MATCHER.match(text, place)
        if match is None:
            raise given.wrong('is no matcher: write it like severity="critical", with one of = != =~ !~')
        found.append(_matcher(given, match, labels))
        place = match.end()
    return found


def label(given: Given, labels: Collection[str]) -> str:
    """The name of a label that alerts may have."""
    if given.text not in labels:
        raise given.wrong(f"is a label that no alert has: {expected(labels, given.text)}")
    return given.text


def _matcher(given: Given, match: re.Match[str], labels: Collection[str]) -> Matcher:
    name, operator = match["label"], Operator(match["operator"])
    if name not in labels:
        raise given.error(f'no alert has a label "{name}": {expected(labels, name)}')
    value = _unescaped(match["plain"] if match["quoted"] is None else match["quoted"])
    if operator in {Operator.MATCHES, Operator.MATCHES_NOT}:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # `[[:alpha:]]`: no class of letters to Python
                re.compile(value)
        except (re.error, Warning) as error:
            raise given.error(f'the pattern of "{name}" is no regular expression: {error}') from error
    return Matcher(name, operator, value)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda escaped: _ESCAPES.get(escaped[1], escaped[0]), text)
