"""A real Prometheus has scraped a real sidecar through a failover: the dashboard and the rules find what they ask for."""

import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.cluster import CLUSTER
from tests.kit.leaders import Leaders
from tests.kit.prometheus import NAMESPACE, Dashboard, Prometheus, Query, filled_in
from tests.kit.receivers import webhook
from tests.kit.serving import serving
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper

_FLINK = """\
high-availability.type: zookeeper
high-availability.zookeeper.quorum: {quorum}
high-availability.zookeeper.client.session-timeout: 4000
"""
_OPEN = 'flink_ha_leadership{state="vacant",component="dispatcher"} == 1'
_CLOSED = "flink_ha_last_episode_timestamp_seconds"
_DELIVERED = 'flink_ha_notifications_total{outcome="delivered"} > 0'


class Scraped(NamedTuple):
    """What happened since `start` (seconds since the epoch) is in Prometheus."""

    prometheus: Prometheus
    start: float


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path) -> Iterator[Scraped]:
    """Two JobManagers contend, the leader fails over once, people are notified, and all of it is scraped."""
    folder = tmp_path_factory.mktemp("dashboard")
    with webhook() as people, serving(ZooKeeper(folder / "zookeeper", flink_2_home, java)) as zookeeper:
        (folder / "conf").mkdir()
        (folder / "conf" / "config.yaml").write_text(_FLINK.format(quorum=zookeeper.address))
        leaders = Leaders(zookeeper.address)
        sidecar = Sidecar(folder / "sidecar", f"flink_conf_dir: {folder / 'conf'}", [people.url], group_wait="1s")
        leaders.start()
        for number in range(2):
            leaders.client.create(f"/flink/{CLUSTER}/leader/latch/_c_{number}-latch-{number:010}")
        sidecar.start()
        try:
            sidecar.wait_ready()
            with serving(Prometheus(folder / "prometheus", {"jm-0": f"127.0.0.1:{sidecar.port}"})) as prometheus:
                start = time.time()
                wait_for("the first scrape", lambda: prometheus.query("flink_ha_leader_info"))
                leaders.vacate()
                wait_for("the vacancy", lambda: prometheus.query(_OPEN))
                leaders.elect()
                for what in (_CLOSED, _DELIVERED, "flink_ha_ledger_up == 1", "flink_ha_handover_up == 1"):
                    wait_for(what, partial(prometheus.query, what))
                yield Scraped(prometheus, start)
        finally:
            sidecar.stop()
            leaders.stop()


def _samples(scraped: Scraped, query: Query) -> list[float]:
    """The values that Grafana would draw, for everything that was scraped."""
    now = time.time()
    seconds = math.ceil(now - scraped.start) + 1
    expression = filled_in(query.expression, seconds, namespace=NAMESPACE, cluster_id=CLUSTER)
    ask = scraped.prometheus
    found = ask.query(expression) if query.is_instant else ask.query_range(expression, now - seconds, now)
    return [value for _, samples in found for _, value in samples if not math.isnan(value)]


def test_the_sidecars_alone_are_scraped(scraped: Scraped) -> None:
    """With the labels by which rules and dashboard distinguish clusters."""
    [(labels, [(_, up)])] = scraped.prometheus.query("up")
    assert (labels["namespace"], labels["pod"], labels["job"], up) == (NAMESPACE, "jm-0", "flink-ha-sidecar", 1)


@pytest.mark.parametrize("query", [*Dashboard().queries()], ids=lambda query: query.where)
def test_every_panel_has_data(scraped: Scraped, query: Query) -> None:
    """Each query of each panel, without exception."""
    assert _samples(scraped, query)


def test_the_failover_can_be_seen(scraped: Scraped) -> None:
    """A vacancy between two leaders, one failover with one cause, transitions and a delivery."""
    shown = {query.where: _samples(scraped, query) for query in Dashboard().queries()}
    assert set(shown["Leadership A"]) == {0, 1}
    assert shown["Failovers A"] == shown["Failovers by cause A"] == [1]
    assert len(shown["Failovers in detail A"]) == 1
    assert max(shown["Time without a published leader A"]) > 0
    assert max(shown["Transitions A"]) > 0
    assert max(shown["Deliveries A"]) > 0


def test_the_failover_is_an_annotation_at_the_time_it_was_over(scraped: Scraped) -> None:
    """In milliseconds, as Grafana takes a value for a time."""
    [query] = Dashboard().annotations()
    times = {value / 1000 for value in _samples(scraped, query)}
    assert len(times) == 1
    assert scraped.start < times.pop() < time.time()


def test_every_variable_offers_what_there_is(scraped: Scraped) -> None:
    """The namespaces and clusters of the sidecars."""
    offered = {
        name: scraped.prometheus.label_values(metric, label)
        for name, (metric, label) in Dashboard().variables().items()
    }
    assert offered == {"namespace": [NAMESPACE], "cluster_id": [CLUSTER]}


def test_every_rule_can_be_evaluated(scraped: Scraped) -> None:
    """Prometheus has evaluated each of them on these metrics, and the recorded figures show one failover."""

    def evaluated() -> list[dict[str, Any]] | None:
        rules = scraped.prometheus.rules()
        return None if any(rule["health"] == "unknown" for rule in rules) else rules

    assert [rule for rule in wait_for("every rule", evaluated) if rule["health"] != "ok"] == []
    one = "cluster:flink_ha_failovers:count1h == 1"
    [(labels, _)] = wait_for("the failover", lambda: scraped.prometheus.query(one))
    assert (labels["namespace"], labels["cluster_id"]) == (NAMESPACE, CLUSTER)
