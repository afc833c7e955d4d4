"""The chart as a dependency of another one: an umbrella chart, rendered by Helm itself."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import CHART
from tests.deploy.test_chart import REQUIRED, rendered
from tests.deploy.test_kubernetes_manifests import NAMESPACE
from tests.kit import helm
from tests.kit.helm import HelmError, Values
from tests.kit.kubectl import Manifest

NAME = CHART.name
ENABLED: Values = {**REQUIRED, "enabled": True}


def umbrella(folder: Path, *dependencies: dict[str, Any]) -> Path:
    """An umbrella chart with these dependencies on our chart."""
    chart = folder / "umbrella"
    shutil.copytree(CHART, chart / "charts" / NAME)
    entries = [{"name": NAME, "version": "*-0", **dependency} for dependency in dependencies]
    (chart / "Chart.yaml").write_text(
        json.dumps({"apiVersion": "v2", "name": "umbrella", "version": "0.1.0", "dependencies": entries})
    )
    return chart


def rendered_by(chart: Path, values: Values) -> list[Manifest]:
    return helm.render(chart, values, NAME, NAMESPACE)


CONDITION = {"condition": f"{NAME}.enabled"}


@pytest.mark.parametrize(
    ("dependency", "values"),
    [
        ({}, {NAME: REQUIRED}),
        (CONDITION, {NAME: ENABLED}),
        ({"tags": ["watching"]}, {NAME: REQUIRED, "tags": {"watching": True}}),
        (CONDITION, {NAME: {**ENABLED, "tags": {"watching": True}}}),
        (CONDITION, {NAME: ENABLED, "global": {"imageRegistry": "registry.example.com", "storageClass": None}}),
        (CONDITION, {NAME: {**ENABLED, "global": {"security": {"allowInsecureImages": True}}}}),
        ({"import-values": ["data"]}, {NAME: {**REQUIRED, "exports": {"data": {"clusterId": "my-flink"}}}}),
    ],
    ids=["alone", "condition", "tags", "tags of its own", "global", "global of its own", "exports"],
)
def test_a_parent_chart_renders_what_the_chart_renders(tmp_path: Path, dependency: Values, values: Values) -> None:
    """Whatever Helm and a parent put among the values for their own use."""
    assert rendered_by(umbrella(tmp_path, dependency), values) == rendered(REQUIRED)


def test_a_parent_chart_can_switch_it_off(tmp_path: Path) -> None:
    """By the condition in its Chart.yaml."""
    assert rendered_by(umbrella(tmp_path, CONDITION), {NAME: {**ENABLED, "enabled": False}}) == []


def test_enabled_without_a_condition_is_refused(tmp_path: Path) -> None:
    """Nothing reads it then, and the chart would be installed although it is off."""
    for chart, values in (
        (umbrella(tmp_path, {}), {NAME: {**ENABLED, "enabled": False}}),
        (CHART, {**ENABLED, "enabled": False}),
    ):
        with pytest.raises(HelmError, match="enabled is false, and no condition of a parent chart reads it"):
            rendered_by(chart, values)


def test_a_mistyped_value_is_still_refused(tmp_path: Path) -> None:
    """In a parent chart's values too."""
    with pytest.raises(HelmError, match="'clusterID' not allowed"):
        rendered_by(umbrella(tmp_path, CONDITION), {NAME: {**ENABLED, "clusterID": "orders"}})


def test_each_alias_has_objects_of_its_own(tmp_path: Path) -> None:
    """Two Flink clusters of one umbrella chart: no name and no selector is the other's."""
    aliases = ("orders", "haPayments")
    chart = umbrella(tmp_path, *({"alias": alias, "condition": f"{alias}.enabled"} for alias in aliases))
    both = {alias: {**ENABLED, "clusterId": alias.lower()} for alias in aliases}
    off = {**ENABLED, "enabled": False}
    manifests = rendered_by(chart, both)
    (orders, payments) = (rendered_by(chart, {**both, other: off}) for other in reversed(aliases))

    def names(manifests: list[Manifest]) -> set[tuple[str, str]]:
        return {(found["kind"], found["metadata"]["name"]) for found in manifests}

    assert names(orders).isdisjoint(names(payments))
    assert names(manifests) == names(orders) | names(payments)
    selectors = [found["spec"]["selector"]["matchLabels"] for found in manifests if found["kind"] == "Deployment"]
    assert len(selectors) == len({json.dumps(selector) for selector in selectors}) == 2
    for found in manifests:
        if found["kind"] == "Deployment":
            labels = found["spec"]["template"]["metadata"]["labels"]
            assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
