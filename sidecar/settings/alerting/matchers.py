"""Matchers in Alertmanager's grammar: `severity="critical"`, `cluster_id=~"orders-.*"`, several separated by commas."""

import re
import warnings
from collections.abc import Collection
from typing import Final

from sidecar.core.policy.labels import Matcher, Operator
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import did_you_mean

_MATCHER: Final = re.compile(
    r'\s*(?P<label>[A-Za-z_][A-Za-z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^",\s{}]*))\s*(?P<end>,|$)'
)
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}


def matchers(setting: Setting, labels: Collection[str] | None) -> list[Matcher]:
    """The matchers in a value. `labels`: the labels that alerts have; None: any label is accepted.

    Raises SettingsError: not a matcher, an invalid pattern, or an unknown label.
    """
    text = setting.text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    found: list[Matcher] = []
    place = 0
    while place < len(text.rstrip()) or not found:
        match = _MATCHER.match(text, place)
        if match is None:
            raise setting.invalid('is not a matcher: write it like severity="critical", with one of = != =~ !~')
        found.append(_matcher(setting, match, labels))
        place = match.end()
    return found


def label(setting: Setting, labels: Collection[str]) -> str:
    """The name of a label that alerts have. Raises SettingsError."""
    if setting.text not in labels:
        raise setting.invalid(f"is a label that no alert has: {did_you_mean(labels, setting.text)}")
    return setting.text


def _matcher(setting: Setting, match: re.Match[str], labels: Collection[str] | None) -> Matcher:
    name, operator = match["label"], Operator(match["operator"])
    if labels is not None and name not in labels:
        raise setting.error(f'no alert has a label "{name}": {did_you_mean(labels, name)}')
    text = match["plain"] if match["quoted"] is None else match["quoted"]
    value = _ESCAPED.sub(lambda escaped: _ESCAPES.get(escaped[1], escaped[0]), text)
    if operator in {Operator.MATCHES, Operator.MATCHES_NOT}:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # `[[:alpha:]]` is not a character class in Python
                re.compile(value)
        except (re.error, Warning) as error:
            raise setting.error(f'the pattern of "{name}" is not a regular expression: {error}') from error
    return Matcher(name, operator, value)
