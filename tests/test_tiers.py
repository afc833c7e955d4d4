"""`make test` and `make test-long` run every test between them, and `make test` shows every feature."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT
from tests.kit.features import features
from tests.kit.groups import LONG, Tier

_COLLECT_SECONDS = 120.0


def collected(file: Path, *arguments: str) -> dict[str, list[str]]:
    """The ids of the tests that pytest would run with these arguments, and the features that each covers."""
    subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--collected", str(file), *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        stdout=subprocess.DEVNULL,
        timeout=_COLLECT_SECONDS,
        check=True,
    )
    return dict(json.loads(file.read_text()))


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Tier], dict[str, list[str]]]:
    """What a command runs."""
    folder = tmp_path_factory.mktemp("tiers")
    return cache(lambda tier: collected(folder / tier, "--tier", tier))


def test_every_feature_has_a_test_in_the_gate(tiers: Callable[[Tier], dict[str, list[str]]]) -> None:
    """Each command, trigger, cause, view, table, receiver, layout of a store, deployment and metric; and nothing else is covered."""
    covered = {feature for covers in tiers(Tier.GATE).values() for feature in covers}
    assert sorted(features() - covered) == [], "no test of `make test` is marked as covering these"
    assert sorted(covered - features()) == [], "these do not exist"


def test_every_test_is_in_a_tier(tiers: Callable[[Tier], dict[str, list[str]]], tmp_path: Path) -> None:
    """In one of them, and a property in both: with few examples in the gate."""
    gate, late = ({*tiers(tier)} for tier in Tier)
    assert gate | late == {*collected(tmp_path / "all")}
    assert gate - late
    assert late - gate


def test_every_row_of_the_table_names_tests(tiers: Callable[[Tier], dict[str, list[str]]]) -> None:
    """A test that was renamed would be in the gate from then on, unnoticed."""
    late = [name.removeprefix("tests/") for name in tiers(Tier.LONG)]
    assert [row for rows in LONG.values() for row in rows if not any(name.startswith(row) for name in late)] == []
