"""A running sidecar takes new rules and receivers, and nothing that is wrong."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.lab.receivers import HttpReceiver
from sidecar.lab.zookeeper import ZooKeeper
from tests.kit.leaders import await_election
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture
def sidecar(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Sidecar]:
    """One that sees a cluster without leaders, and tells nobody."""
    await_election(zookeeper.address)
    running = Sidecar(tmp_path, f"zookeeper: {{quorum: '{zookeeper.address}'}}", [])
    running.start()
    running.wait_ready()
    yield running
    running.stop()


def test_rules_and_receivers_change_under_way(sidecar: Sidecar) -> None:
    """A wrong file is said on the page and in a metric, and changes nothing; a right one counts on SIGHUP, with a receiver that is new."""
    receiver = HttpReceiver()
    receiver.start()
    before = sidecar.config.read_text()
    sidecar.config.write_text(before + "rules: [{alert: NoLeader, on: vacent}]\n")
    wait_for("the mistake", lambda: "flink_ha_rules_up 0.0" in sidecar.get("/metrics")[1])
    assert "did you mean" in sidecar.get("/")[1]
    sidecar.config.write_text(
        before
        + "rules: [{alert: NobodyLeads, on: vacant, for: 1s}]\n"
        + "route: {receiver: ops, group_wait: 0s}\n"
        + f"receivers: [{{name: ops, urls: ['{receiver.url}']}}, {{name: dead, urls: ['{receiver.url}'], heartbeat: 10s}}]\n"
    )
    assert sidecar.process is not None
    sidecar.process.send_signal(signal.SIGHUP)
    wait_for("the alert of the new rule", lambda: [m for m in receiver.received if "no leader for" in m.title])
    wait_for("a heartbeat", lambda: [m for m in receiver.received if m.title == "[HEARTBEAT] jm-0 watches default"])
    assert "flink_ha_rules_up 1.0" in sidecar.get("/metrics")[1]
    log = sidecar.log.read_text()
    assert "reload failed, keeping the previous rules: " in log
    assert "reloaded: 1 rule (new: NobodyLeads; removed: FlinkJobLeaderChanged, " in log
    assert ", 2 receivers (new: dead, ops)" in log
    assert "Traceback" not in log
    receiver.stop()
