"""What the gate has to show at least once, from the code's own lists: `view:mttr`, `command:audit ingest`, `metric:flink_ha_contenders`.

A test says with `@pytest.mark.covers("view:mttr")` that it shows a feature, on the real thing where there is one. tests/test_tiers.py fails
where a feature has no such test in `make test`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

import click
import pytest
from _pytest.mark.structures import ParameterSet

from sidecar.audit.log.closed_tables import CLOSED_TABLES
from sidecar.audit.log.tables import BASE_VIEWS
from sidecar.audit.views.catalog import ANSWERS
from sidecar.cli.main import cli
from sidecar.core.failover.causes import Cause
from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.core.policy.triggers import Trigger
from sidecar.settings.alerting.receivers import KINDS
from tests import ROOT
from tests.kit.metric_families import families

DEPLOY: Final = ROOT / "deploy"


def commands(group: click.Group = cli, name: str = "") -> Iterator[str]:
    """Each command as it is typed."""
    for word, command in group.commands.items():
        yield from commands(command, f"{name}{word} ") if isinstance(command, click.Group) else [f"{name}{word}"]


def deployments() -> Iterator[str]:
    """The chart, and each folder below deploy/ that Kustomize can build."""
    yield "chart"
    yield from (str(file.parent.relative_to(DEPLOY)) for file in sorted(DEPLOY.rglob("kustomization.yaml")))


KINDS_OF_FEATURES: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    "command": commands,
    "trigger": lambda: Trigger,
    "cause": lambda: Cause,
    "view": lambda: ANSWERS,
    "table": lambda: {*BASE_VIEWS, *CLOSED_TABLES},
    "receiver": lambda: KINDS,
    "layout": lambda: [layout.name for layout in (*ZNodeLayout, *ConfigMapLayout)],
    "deployment": deployments,
    "metric": lambda: [family.name for family in families()],
}


def features() -> set[str]:
    """All of them."""
    return {f"{kind}:{name}" for kind, names in KINDS_OF_FEATURES.items() for name in names()}


def covering(kind: str, values: Iterable[Enum]) -> list[ParameterSet]:
    """A parameter for each of these values, whose test covers it."""
    names = [(value, value.name if kind == "layout" else str(value)) for value in values]
    return [pytest.param(value, marks=pytest.mark.covers(f"{kind}:{name}"), id=name) for value, name in names]
