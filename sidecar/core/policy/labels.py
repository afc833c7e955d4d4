"""Labels of alerts, and matchers over them: Alertmanager's, with its meaning."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

Labels = Mapping[str, str]

PLANNED = "planned"
CHECK = "check"
OWN_LABELS = ("alert", CHECK, "cluster_id", "component", "job_id", "observer", PLANNED, "severity", "store")
"""Labels of alerts besides the external labels. Not every alert has all of them: see docs/reference/rules.md."""


class Operator(StrEnum):
    """How a matcher compares."""

    EQUAL = "="
    NOT_EQUAL = "!="
    MATCHES = "=~"
    MATCHES_NOT = "!~"


class Matcher(Struct, frozen=True):
    """A condition on one label. An absent label counts as empty; a regular expression must match the whole value."""

    label: str
    operator: Operator
    value: str

    def __str__(self) -> str:
        return f'{self.label}{self.operator}"{self.value}"'

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.label, "")
        match self.operator:
            case Operator.EQUAL:
                return value == self.value
            case Operator.NOT_EQUAL:
                return value != self.value
            case Operator.MATCHES:
                return _compiled(self.value).fullmatch(value) is not None
            case Operator.MATCHES_NOT:
                return _compiled(self.value).fullmatch(value) is None


def match_all(matchers: Iterable[Matcher], labels: Labels) -> bool:
    """Whether each of `matchers` is true of `labels`; no matcher is true of everything."""
    return all(matcher.matches(labels) for matcher in matchers)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
