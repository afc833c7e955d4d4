"""A real Prometheus (Debian's package) that scrapes each second, and the rules and the dashboard that the project ships for it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, Final, NamedTuple

import requests
from msgspec import json
from ruamel.yaml import YAML

from tests import ROOT
from tests.kit.debian import find_tool
from tests.lab.processes import ServerProcess, free_port

RULES: Final = ROOT / "rules" / "prometheus"
RULE_FILES: Final = (RULES / "alerts.yaml", RULES / "recording.yaml")
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "flink-ha-sidecar.json"
SCRAPE_CONFIG: Final = ROOT / "deploy" / "prometheus" / "scrape-config.yaml"
PROMETHEUS_RULE: Final = ROOT / "deploy" / "prometheus" / "prometheusrule.yaml"
_PROMETHEUS_RULE: Final = """\
# The rules of rules/prometheus for the Prometheus Operator. Made by `python -m tests.kit.prometheus`: change them there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: flink-ha-sidecar
  labels: {app.kubernetes.io/name: flink-ha-sidecar}
spec:
  groups:
"""
NAMESPACE: Final = "flink"
_METRIC: Final = re.compile(r"(?<![\w:])flink_ha_\w+(?![\w:])")
_LABEL_VALUES: Final = re.compile(r"label_values\((\w+), (\w+)\)")
_ASK_SECONDS: Final = 30.0

Labels = Mapping[str, str]
Series = tuple[Labels, list[tuple[float, float]]]
"""Labels, and samples as time and value."""


class Prometheus(ServerProcess):
    """A server with the shipped rules and scrape configuration."""

    def __init__(self, folder: Path, pods: Mapping[str, str]) -> None:
        """`pods`: the address of each sidecar by the name of its pod, which would be found in the namespace `NAMESPACE`."""
        super().__init__("Prometheus", folder / "prometheus.log")
        self._folder = folder
        self._pods = pods
        self._port = 0

    def choose_ports(self) -> None:
        self._port = free_port()

    def build_command(self) -> Sequence[str]:
        config = YAML(typ="safe").load(SCRAPE_CONFIG)
        [job] = config["scrape_configs"]
        job.pop("kubernetes_sd_configs")
        job["static_configs"] = [*self._targets()]
        job["scrape_interval"] = "1s"
        config["global"] = {"evaluation_interval": "1s"}
        config["rule_files"] = list(map(str, RULE_FILES))
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "prometheus.yml"
        file.write_bytes(json.encode(config))  # JSON is YAML
        return (
            str(find_tool("prometheus", "prometheus")),
            f"--config.file={file}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        )

    def _targets(self) -> Iterator[dict[str, Any]]:
        """What the discovery of pods would find: each sidecar's port, and another port of its pod."""
        for pod, address in self._pods.items():
            for port, target in (("ha-sidecar", address), ("rpc", "127.0.0.1:1")):
                meta = {
                    "namespace": NAMESPACE,
                    "pod_name": pod,
                    "pod_container_port_name": port,
                    "pod_phase": "Running",
                }
                labels = {f"__meta_kubernetes_{name}": value for name, value in meta.items()}
                yield {"targets": [target], "labels": labels}

    def is_ready(self) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{self._port}/-/ready", timeout=_ASK_SECONDS).ok
        except requests.ConnectionError:
            return False

    def query(self, expression: str) -> list[Series]:
        """The result of an instant query, now."""
        result = self._ask("query", query=expression)["result"]
        return [(series["metric"], [_sample(series["value"])]) for series in result]

    def query_range(self, expression: str, start: float, end: float, step: float = 1) -> list[Series]:
        """The result of a range query. Times in seconds since the epoch."""
        result = self._ask("query_range", query=expression, start=start, end=end, step=step)["result"]
        return [(series["metric"], [*map(_sample, series["values"])]) for series in result]

    def label_values(self, metric: str, label: str) -> list[str]:
        """What a template variable of a dashboard offers."""
        values: list[str] = self._ask(f"label/{label}/values", **{"match[]": metric})
        return values

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their health."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def _ask(self, path: str, **parameters: Any) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}"
        answer = requests.get(url, params=parameters, timeout=_ASK_SECONDS).json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]


def _sample(pair: tuple[float, str]) -> tuple[float, float]:
    return pair[0], float(pair[1])


class Query(NamedTuple):
    """A query of the dashboard."""

    where: str
    """The panel's title and the query's letter."""
    expression: str
    is_instant: bool
    legend: str = ""


class Dashboard:
    """The shipped dashboard, as Grafana reads it."""

    def __init__(self) -> None:
        self.model: dict[str, Any] = json.decode(DASHBOARD.read_bytes())

    def queries(self) -> Iterator[Query]:
        """The queries of all panels."""
        for panel in self.model["panels"]:
            for target in panel["targets"]:
                where = f"{panel['title']} {target['refId']}"
                yield Query(where, target["expr"], target.get("instant", False), target.get("legendFormat", ""))

    def annotations(self) -> Iterator[Query]:
        """The queries of annotations."""
        for annotation in self.model["annotations"]["list"]:
            yield Query(annotation["name"], annotation["expr"], is_instant=False)

    def variables(self) -> dict[str, tuple[str, str]]:
        """Metric and label of each variable that is asked of Prometheus."""
        queries = {}
        for variable in self.model["templating"]["list"]:
            if variable["type"] == "query":
                asked = _LABEL_VALUES.fullmatch(variable["query"]["query"])
                assert asked, variable
                queries[variable["name"]] = (asked[1], asked[2])
        return queries


def filled_in(expression: str, seconds: int, scrape_seconds: int = 1, **variables: str) -> str:
    """An expression of the dashboard as Grafana sends it: for the last `seconds`, and these values of variables."""
    values = {
        "__range_s": f"{seconds}",
        "__range": f"{seconds}s",
        "__rate_interval": f"{4 * scrape_seconds}s",
        "__interval": f"{scrape_seconds}s",
        **variables,
    }
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], expression)


def metrics_in(expression: str) -> set[str]:
    """The names of our metrics in an expression."""
    return set(_METRIC.findall(re.sub(r'"[^"]*"', '""', expression)))


def rule_groups() -> list[dict[str, Any]]:
    """The groups of all rule files."""
    return [group for file in RULE_FILES for group in YAML(typ="safe").load(file)["groups"]]


def prometheus_rule() -> str:
    """The rules as the Prometheus Operator takes them: deploy/prometheus/prometheusrule.yaml."""
    groups = [file.read_text().partition("groups:\n")[2] for file in RULE_FILES]
    return _PROMETHEUS_RULE + indent("\n".join(groups), "  ")


if __name__ == "__main__":
    PROMETHEUS_RULE.write_text(prometheus_rule())
