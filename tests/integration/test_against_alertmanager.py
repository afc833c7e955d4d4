"""Alertmanager's `amtool` and our routes: the same tree, the same labels, the same receivers."""

from pathlib import Path
from random import Random

import pytest

from sidecar.settings import SettingsError
from sidecar.settings.loader import read_rules
from tests.kit.amtool import AmtoolError, find_amtool, receivers
from tests.kit.route_trees import Tree, label_set, one_matcher, our_receivers

TREES = 100
ASKED = 2
"""Label sets for each tree: amtool is a process for each question."""


@pytest.fixture(scope="module")
def amtool() -> Path:
    """The judge."""
    return find_amtool()


def test_an_alert_takes_the_routes_that_alertmanager_would_give_it(amtool: Path, tmp_path: Path) -> None:
    """Random trees with all operators, patterns, escapes, `continue`, missing and empty labels: the same receivers, in the same order."""
    random = Random(6)
    judgements = set()
    for _ in range(TREES):
        tree = Tree(random, tmp_path)
        for labels in (label_set(random) for _ in range(ASKED)):
            judged = receivers(amtool, tree.alertmanager, labels)
            assert tree.receivers(labels) == judged, f"{labels}\n{tree.alertmanager.read_text()}"
            judgements.add(judged)
    assert len(judgements) > TREES // 4, "the trees are too simple to show a difference"


REFUSED = "refused"


@pytest.mark.parametrize(
    ("matcher", "value", "theirs", "ours"),
    [
        (r'x=~"\w"', "ü", "root", "a"),
        (r'x=~"\d"', "٣", "root", "a"),
        (r'x=~"a{,2}"', "aa", "root", "a"),
        (r'x=~"[[:alpha:]]"', "a", "a", REFUSED),
        (r'x=~"\pL"', "a", "a", REFUSED),
        (r'x=~"a\z"', "a", "a", REFUSED),
        (r'x=~"\Qa.b\E"', "a.b", "a", REFUSED),
        (r'x=~"a(?i)b"', "aB", "a", REFUSED),
        (r'x=~"(?!b)a"', "a", REFUSED, "a"),
        (r'x=~"(a)\1"', "aa", REFUSED, "a"),
        (r'x=~"a\Z"', "a", REFUSED, "a"),
        (r'x=~"a++"', "aa", REFUSED, "a"),
        ("x=a b", "a b", "a", REFUSED),
        ("", "a", "a", REFUSED),
        ("{}", "a", "a", REFUSED),
    ],
)
def test_where_alertmanager_and_we_differ(
    matcher: str, value: str, theirs: str, ours: str, amtool: Path, tmp_path: Path
) -> None:
    """What docs/reference/rules.md says of it, and nothing else."""
    labels = [f'x="{value}"']
    alertmanager, our_file = one_matcher(matcher, tmp_path)
    try:
        alertmanagers = receivers(amtool, alertmanager, labels)
    except AmtoolError:
        alertmanagers = REFUSED
    try:
        own = our_receivers(read_rules(our_file), labels)
    except SettingsError:
        own = REFUSED
    assert (alertmanagers, own) == (theirs, ours)
