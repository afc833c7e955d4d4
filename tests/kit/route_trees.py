"""Random route trees, written for Alertmanager and for us, and random labels to ask them about."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from sidecar.core.policy.routing import matching
from sidecar.settings.file.setting import Setting
from sidecar.settings.loader import labels_in, read_rules
from sidecar.settings.model import Alerting

LABELS: Final = ("severity", "team", "l0", "l1")
VALUES: Final = (
    "a",
    "b",
    "ab",
    "A",
    "1",
    "a b",
    "a,b",
    'say "a"',
    "back\\slash",
    "two\\nlines",
    "two\nlines",
    "{a}",
    "$a",
    "'a'",
    "ü",
    "",
)
PATTERNS: Final = (
    *(
        "a|b",
        ".*",
        ".+",
        "",
        "a?b?",
        "[a-c]+",
        "[^a]*",
        "(?i)AB?",
        "(a|b)+",
        "a.b",
        "a\\.b",
        'say ".*"',
        "\\{a\\}",
        "a{1,2}b",
    ),
    *(".*\\\\.*", "\\$a", "ab|", "(?:a|ü)", "(?s).*lines", "\\d+", "a\\s+b", "(?P<n>a)"),
)
"""Such as Python and RE2 read alike."""
_RECEIVERS: Final = tuple(f"r{number}" for number in range(6))
_PLAIN: Final = frozenset(
    {"a", "b", "ab", "A", "1", "$a", "ü", "a|b", ".*", ".+", "a.b", "[a-c]+", "back\\slash", "\\d+", "two\\nlines", ""}
)
"""Such as may stand without quotes."""


class Tree:
    """A route tree, in both formats, below `folder`."""

    def __init__(self, random: Random, folder: Path) -> None:
        route = {"receiver": random.choice(_RECEIVERS), "routes": [*_routes(random, 3)]}
        self.alertmanager, ours = _written(route, _RECEIVERS, [name for name in LABELS if name != "severity"], folder)
        self._ours = read_rules(ours)

    def receivers(self, labels: list[str]) -> str:
        """Who gets an alert with these labels, as `rules test --labels` prints it."""
        return our_receivers(self._ours, labels)


def one_matcher(matcher: str, folder: Path) -> tuple[Path, Path]:
    """For Alertmanager and for us: what `matcher` matches goes to `a`, all else to `root`."""
    route = {"receiver": "root", "routes": [{"receiver": "a", "matchers": [matcher]}]}
    return _written(route, ("root", "a"), ["x"], folder)


def our_receivers(rules: Alerting, labels: list[str]) -> str:
    text = ",".join(labels)
    alert_labels = labels_in(Setting(text, "the labels"))
    return ",".join(route.receiver for route in matching(rules.route, alert_labels))


def _written(route: dict[str, Any], names: Sequence[str], labels: Sequence[str], folder: Path) -> tuple[Path, Path]:
    """The same route for Alertmanager, and for us. JSON is YAML."""
    theirs, ours = folder / "alertmanager.yml", folder / "rules.yaml"
    theirs.write_text(json.dumps({"route": route, "receivers": [{"name": name} for name in names]}))
    receivers = [{"name": name, "urls": ["json://127.0.0.1"]} for name in names]
    own = {"external_labels": dict.fromkeys(labels, "known"), "receivers": receivers, "route": route}
    ours.write_text(json.dumps(own, ensure_ascii=False))
    return theirs, ours


def label_set(random: Random) -> list[str]:
    """Labels of an alert, as `name="value"`: some are missing, some are empty."""
    return [f"{name}={_quoted(random.choice(VALUES))}" for name in LABELS if random.random() < 0.7]


def _routes(random: Random, depth: int) -> Iterator[dict[str, Any]]:
    """Up to four routes beside each other, with `depth` levels below them."""
    for _ in range(random.randint(1, 4)):
        route: dict[str, Any] = {"matchers": [_matcher(random) for _ in range(random.choice((0, 1, 1, 1, 2)))]}
        if random.random() < 0.8:
            route["receiver"] = random.choice(_RECEIVERS)
        if random.random() < 0.5:
            route["continue"] = True
        if depth and random.random() < 0.6:
            route["routes"] = [*_routes(random, depth - 1)]
        yield route


def _matcher(random: Random) -> str:
    operator = random.choice(("=", "!=", "=~", "!~"))
    value = random.choice(PATTERNS if "~" in operator else VALUES)
    space = random.choice(("", "", " "))
    written = value if value in _PLAIN and random.random() < 0.5 else _quoted(value)
    matcher = f"{space}{random.choice(LABELS)}{space}{operator}{space}{written}{space}"
    return f"{{{matcher}}}" if random.random() < 0.1 else matcher


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
