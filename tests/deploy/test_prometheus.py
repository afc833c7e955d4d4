"""What an operator loads into Prometheus and Grafana: rules that fire when they should, on metrics that exist."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.deploy.manifests import DEPLOY, document
from tests.deploy.test_manifests import BASE
from tests.kit.debian import find_tool
from tests.kit.metric_families import families, sample_names
from tests.kit.prometheus import (
    PROMETHEUS_RULE,
    RULES,
    SCRAPE_CONFIG,
    Dashboard,
    metrics_in,
    prometheus_rule,
    rule_groups,
)
from tests.test_documents import anchors

HERE = DEPLOY / "prometheus"
PAGE = ROOT / "docs" / "reference" / "metrics.md"
RUNBOOKS = ROOT / "docs" / "how-to" / "troubleshooting.md"
LINK = "https://github.com/flink-ha-sidecar/flink-ha-sidecar/blob/main/docs/how-to/troubleshooting.md#"
ALERTS = {rule["alert"]: rule for group in rule_groups() for rule in group["rules"] if "alert" in rule}
RECORDED = {rule["record"]: rule for group in rule_groups() for rule in group["rules"] if "record" in rule}
TESTS = sorted(RULES.glob("*.test.yaml"))
_CHECK_SECONDS = 60.0
_RECORDED = re.compile(r"\b\w+:flink_ha_\w+:\w+")


def promtool(*arguments: str | Path) -> str:
    """What it prints; it must accept."""
    command = [str(find_tool("promtool", "prometheus")), *map(str, arguments)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return checked.stdout


def scenarios() -> list[dict[str, Any]]:
    """The tests of the rules."""
    return [scenario for file in TESTS for scenario in document(file)["tests"]]


def test_the_rules_do_what_their_tests_say() -> None:
    """Prometheus' own tool runs them."""
    assert promtool("test", "rules", *TESTS).count("SUCCESS") == len(TESTS)


def test_every_alert_is_tested_firing_and_quiet() -> None:
    """On series that could make it fire."""
    cases = [case for scenario in scenarios() for case in scenario.get("alert_rule_test", [])]
    firing = {case["alertname"] for case in cases if case["exp_alerts"]}
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert firing == quiet == ALERTS.keys()


def test_every_recorded_figure_is_tested() -> None:
    """With at least one expected value."""
    cases = [case for scenario in scenarios() for case in scenario.get("promql_expr_test", [])]
    assert {case["expr"] for case in cases if case["exp_samples"]} == RECORDED.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_what_is_wrong_and_what_to_do(name: str) -> None:
    """A severity, two sentences, and a link to its heading in the documents."""
    rule = ALERTS[name]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == LINK + name.lower()
    assert name.lower() in anchors(RUNBOOKS)


def test_every_runbook_and_recorded_figure_is_there() -> None:
    """No heading without an alert, no figure that the page does not explain."""
    page = PAGE.read_text()
    both, _, alone = RUNBOOKS.read_text().partition("\n## Alerts of Prometheus alone\n")
    own = re.findall(r"^### (\w+)$", alone.partition("\n## ")[0], re.MULTILINE)
    shared = {name for name in ALERTS if f"\n### {name}\n" in both}
    assert sorted(own) == sorted(ALERTS.keys() - shared)
    assert set(_RECORDED.findall(page)) == RECORDED.keys()


def test_only_metrics_that_exist_are_asked_for() -> None:
    """By rules and by the dashboard; recorded figures by rules alone."""
    exposed = {name for family in families() for name in sample_names(family)}
    rules = [rule["expr"] for group in rule_groups() for rule in group["rules"]]
    dashboard = [query.expression for query in (*Dashboard().queries(), *Dashboard().annotations())]
    asked = {name for expression in (*rules, *dashboard) for name in metrics_in(expression)}
    assert asked - exposed == set()
    assert {metric for metric, _ in Dashboard().variables().values()} <= exposed
    recorded = {name for rule in rules for name in _RECORDED.findall(rule)}
    assert recorded <= RECORDED.keys()
    assert not any(_RECORDED.search(expression) for expression in dashboard)


def test_the_operator_gets_the_same_rules() -> None:
    """`python -m tests.kit.prometheus` makes the file."""
    assert PROMETHEUS_RULE.read_text() == prometheus_rule()
    manifest = document(PROMETHEUS_RULE)
    assert (manifest["apiVersion"], manifest["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert manifest["spec"] == {"groups": rule_groups()}


def test_what_is_scraped_is_the_port_of_the_sidecar() -> None:
    """Wherever it runs: by its name."""
    pods = [
        document(file)["spec"]["template"]["spec"]
        for file in (BASE / "sidecar.yaml", DEPLOY / "kubernetes" / "deployment.yaml")
    ]
    ports = {port["name"] for pod in pods for container in pod["containers"] for port in container["ports"]}
    [endpoint] = document(HERE / "podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    [job] = document(SCRAPE_CONFIG)["scrape_configs"]
    keep = job["relabel_configs"][0]
    assert keep["source_labels"] == ["__meta_kubernetes_pod_container_port_name"]
    assert ports == {endpoint["port"]} == {keep["regex"]}


def test_prometheus_accepts_the_scrape_configuration(tmp_path: Path) -> None:
    """With the rules beside it, as the file says. Debian's promtool is built without the discovery of pods: it gets an empty list."""
    text = SCRAPE_CONFIG.read_text()
    discovery = "kubernetes_sd_configs: [{role: pod}]"
    assert discovery in text
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace(discovery, "static_configs: []"))
    (tmp_path / "flink-ha-sidecar").mkdir()
    for name in ("alerts.yaml", "recording.yaml"):
        (tmp_path / "flink-ha-sidecar" / name).write_bytes((RULES / name).read_bytes())
    said = promtool("check", "config", config)
    assert f"{len(ALERTS)} rules found" in said
    assert f"{len(RECORDED)} rules found" in said


@pytest.mark.covers("deployment:prometheus")
def test_the_kustomization_applies_what_is_for_the_operator() -> None:
    """Both manifests, into the namespace of the sidecars."""
    kustomization = document(HERE / "kustomization.yaml")
    assert {document(HERE / file)["kind"] for file in kustomization["resources"]} == {"PodMonitor", "PrometheusRule"}
    assert (
        kustomization["namespace"] == document(DEPLOY / "examples" / "kubernetes" / "kustomization.yaml")["namespace"]
    )


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    """Each has a title, an id of its own and room."""
    panels = Dashboard().model["panels"]
    for name in ("id", "title"):
        assert len({panel[name] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for grid in (panel["gridPos"] for panel in panels)
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells))
    assert {x for x, _ in cells} == {*range(24)}
