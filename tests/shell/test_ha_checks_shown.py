"""Checks of high availability on the page, in the API and as metrics, and the thread that makes them."""

import struct
import threading
import time
from pathlib import Path

import pytest

from sidecar.app import ha_checking
from sidecar.app.ha_checking import HaChecker
from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.ha.results import CheckResult
from sidecar.core.observations import HaChecked
from sidecar.core.views.snapshot import Snapshot
from sidecar.runtime import threads
from sidecar.runtime.clock import Clock
from sidecar.settings import ClusterSettings, load
from sidecar.sinks.metrics import SnapshotCollector
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import Sidecar, watching
from tests.kit.metric_families import WELL
from tests.kit.waiting import wait_for
from tests.lab.processes import free_port
from tests.shell.reading import Markup, read, show
from tests.shell.remembering import HOSTILE
from tests.shell.site import Site

FOUND = (
    CheckResult(check="open_acls", verdict=CheckVerdict.PASS, text="only known identities may change Flink's znodes"),
    CheckResult(check="server_load", verdict=CheckVerdict.UNKNOWN, text="zk-1 does not answer srvr"),
    CheckResult(
        check="standby", verdict=CheckVerdict.RISK, text="one JobManager contends", advice="start a second one"
    ),
)


def checked(*results: CheckResult) -> Sidecar:
    _, sidecar = watching()
    sidecar.observe(HaChecked(sidecar.moment, CLUSTER, results))
    return sidecar


def test_risks_come_first_in_the_api(site: Site) -> None:
    """Then what is unknown; before the first check there is nothing."""
    _, sidecar = watching()
    show(site, sidecar)
    assert site.data("/api/v1/ha-checks") == []
    show(site, checked(*FOUND))
    risk, unknown, passed = site.data("/api/v1/ha-checks")
    assert (unknown["verdict"], passed["verdict"], passed["advice"]) == ("UNKNOWN", "PASS", None)
    assert risk == {
        "cluster_id": CLUSTER,
        "check": "standby",
        "verdict": "RISK",
        "since": risk["checked_at"],
        "checked_at": risk["checked_at"],
        "finding": "one JobManager contends",
        "advice": "start a second one",
    }
    assert site.get("/api/v1/ha-checks?x=1")[0] == 400


def test_the_page_shows_what_did_not_pass_and_what_to_do(site: Site) -> None:
    """And counts what did."""
    show(site, checked(*FOUND))
    page = read(site)
    assert "High availability: 1 risk, 1 unknown, 1 passed; checked" in page
    assert "standby RISK one JobManager contends Next: start a second one" in page
    assert "only known identities" not in page


def test_what_others_wrote_is_text_on_the_page(site: Site) -> None:
    """The facts have names of znodes and pods."""
    results = [CheckResult(check="leftover_clusters", verdict=CheckVerdict.RISK, text=HOSTILE, advice=HOSTILE)]
    show(site, checked(*results))
    plain = Markup(site.get("/")[1])
    show(site, checked(CheckResult(check="leftover_clusters", verdict=CheckVerdict.RISK, text="x", advice="y")))
    assert plain.tags == Markup(site.get("/")[1]).tags


@pytest.mark.covers("metric:flink_ha_check")
def test_each_check_is_a_metric_with_its_verdict() -> None:
    """A series for what it found last, and none for other verdicts."""
    sidecar = checked(*FOUND)
    snapshot = Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy)
    families = SnapshotCollector(lambda: snapshot, lambda _: "zookeeper", lambda: WELL).collect()
    [family] = [family for family in families if family.name == "flink_ha_check"]
    assert {(sample.labels["check"], sample.labels["verdict"]): sample.value for sample in family.samples} == {
        ("open_acls", "PASS"): 1,
        ("server_load", "UNKNOWN"): 1,
        ("standby", "RISK"): 1,
    }


def test_a_cluster_is_checked_also_where_nothing_answers(tmp_path: Path) -> None:
    """What cannot be read is UNKNOWN, and the end is not held up."""
    config = tmp_path / "sidecar.yaml"
    config.write_text(f"zookeeper: {{quorum: '127.0.0.1:{free_port()}', cluster_id: /orders}}\n")
    rounds: list[HaChecked] = []
    checker = HaChecker(load(config, {}).clusters, Clock(), interval=0.01, ledger=True, first=0.0)
    checker.start(rounds.append)
    wait_for("a round", lambda: rounds)
    began = time.monotonic()
    checker.stop()
    assert time.monotonic() - began < 5
    verdicts = {result.check: result.verdict for result in rounds[0].results}
    assert {check for check, verdict in verdicts.items() if verdict is not CheckVerdict.UNKNOWN} == {
        "shared_cluster_id"
    }
    assert not threads.dead()
    # Kazoo's threads draw random numbers, which property tests of the same process would notice.
    left = {"ha-checks", "zookeeper-client", "zookeeper-goodbye"}
    wait_for("the end of the last check", lambda: left.isdisjoint(thread.name for thread in threading.enumerate()))


def test_checks_that_fail_for_one_cluster_are_made_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong with it: it is logged, and the next cluster has its turn."""

    class Broken:
        """A probe with an error of its own."""

        def __init__(self, cluster: ClusterSettings, *_: object, **_options: object) -> None:
            self._cluster_id = cluster.cluster_id
            asked.append(cluster.cluster_id)

        def read(self) -> None:
            raise struct.error("unpack_from requires a buffer")

        def stop(self) -> None:
            """Nothing goes on."""

    asked: list[str] = []
    monkeypatch.setattr(ha_checking, "ha_probe_of", Broken)
    config = tmp_path / "sidecar.yaml"
    clusters = ", ".join(f"{{zookeeper: {{quorum: zk, cluster_id: /{name}}}}}" for name in ("a", "b"))
    config.write_text(f"clusters: [{clusters}]\n")
    checker = HaChecker(load(config, {}).clusters, Clock(), interval=0.01, ledger=True, first=0.0)
    checker.start(lambda _: None)
    wait_for("both", lambda: len(asked) >= 2)
    checker.stop()
    assert asked[:2] == ["a", "b"]
    assert "the checks of cluster a failed" in caplog.text


def test_without_an_interval_nothing_is_checked(tmp_path: Path) -> None:
    """`ha_check: {interval: 0}`; and nothing has to be stopped."""
    config = tmp_path / "sidecar.yaml"
    config.write_text("zookeeper: {quorum: zk}\nha_check: {interval: 0}\n")
    settings = load(config, {})
    assert settings.ha_check is None
    checker = HaChecker(settings.clusters, Clock(), interval=settings.ha_check, ledger=True, first=0.0)
    checker.start(lambda _: None)
    checker.stop()
    assert load(None, {"zookeeper": "zk"}).ha_check == 3600
