"""Matchers in Alertmanager's grammar: `severity="critical"`, `cluster_id=~"orders-.*"`, several separated by commas."""

import re
import warnings
from collections.abc import Collection, Mapping
from typing import Final

from sidecar.core.policy.labels import Matcher, Operator
from sidecar.core.policy.policy import Rule
from sidecar.settings.file.did_you_mean import did_you_mean
from sidecar.settings.file.setting import Setting

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
    result: list[Matcher] = []
    place = 0
    while place < len(text.rstrip()) or not result:
        match = _MATCHER.match(text, place)
        if match is None:
            hint = 'is not a matcher: write it like severity="critical", with one of = != =~ !~'
            raise setting.invalid(f"{hint}{_reason(text[place:])}")
        result.append(_matcher(setting, match, labels))
        place = match.end()
    return result


def no_rule_has(matcher: Matcher, by_label: Mapping[str, Collection[str]]) -> str | None:
    """The message that no rule has what the matcher asks for, with the nearest. None: a rule has it, or its label is not in `by_label`, the
    values."""
    values = by_label.get(matcher.label)
    positive = matcher.operator in {Operator.EQUAL, Operator.MATCHES}
    if values is None or not positive or any(matcher.matches({matcher.label: value}) for value in values):
        return None
    return f"no rule has {matcher}: {did_you_mean(values, matcher.value) if values else 'there are no rules'}"


def label_values(rules: Collection[Rule]) -> dict[str, set[str]]:
    """The values that the alerts of these rules have, by label."""
    return {"alert": {rule.alert for rule in rules}, "severity": {rule.severity.value for rule in rules}}


def _reason(rest: str) -> str:
    """The mistake at the beginning of `rest`, where it is known."""
    if re.match(r'\s*"[^"]*"\s*[=!]', rest):
        return "; the name of a label is written without quotes"
    if re.match(r'\s*[A-Za-z_][A-Za-z0-9_]*\s*(?:=~|!~|!=|=)\s*[^",{}]*\s[^",{}]*(?:,|$)', rest):
        return "; a value with a blank needs quotes around it"
    return ""


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
