"""A running sidecar takes new rules and receivers, and nothing that is wrong."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.leaders import await_election
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

pytestmark = pytest.mark.e2e


@pytest.fixture
def sidecar(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Sidecar]:
    """One that sees a cluster without leaders, and notifies nobody."""
    await_election(zookeeper.address)
    running = Sidecar(tmp_path, f"zookeeper: {{quorum: '{zookeeper.address}'}}", [])
    running.start().wait_ready()
    yield running
    running.stop()


def test_rules_and_receivers_change_under_way(sidecar: Sidecar) -> None:
    """A wrong file is reported on the page and in a metric, and changes nothing; a right one counts on SIGHUP, with a new receiver."""
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
    wait_for("the alert of the new rule", lambda: [m for m in receiver.received if "no leader for" in m.body])
    wait_for("a heartbeat", lambda: [m for m in receiver.received if m.title == "[HEARTBEAT] jm-0 watches default"])
    assert "flink_ha_rules_up 1.0" in sidecar.get("/metrics")[1]
    log = sidecar.log.read_text()
    assert "reload failed, keeping the previous rules: " in log
    assert "reloaded: 1 rule (new: NobodyLeads; removed: FlinkJobLeaderChanged, " in log
    assert ", 2 receivers (new: dead, ops)" in log
    assert "Traceback" not in log
    receiver.stop()


def test_an_incident_that_a_reload_drops_is_closed(sidecar: Sidecar) -> None:
    """At the webhook that shows it, by its key; when the webhook is gone, the log warns that somebody has to close it by hand."""
    receiver = HttpReceiver()
    receiver.start()
    before = sidecar.config.read_text()

    def loads(rule: str, *receivers: str) -> None:
        sidecar.config.write_text(
            f"{before}rules: [{{alert: {rule}, on: vacant, for: 1s}}]\n"
            f"route: {{receiver: ops, group_wait: 0s}}\nreceivers: [{{name: ops, {', '.join(receivers)}}}]\n"
        )
        assert sidecar.process is not None
        sidecar.process.send_signal(signal.SIGHUP)

    def posted(status: str, rule: str) -> list[dict[str, Any]]:
        found = [json.loads(message.raw) for message in receiver.received]
        return [each for each in found if each["status"] == status and rule in each["title"] + each["text"]]

    webhook = f"webhook: {{url: 'http://{receiver.address}/'}}"
    loads("Before", webhook)
    wait_for("the incident", lambda: posted("firing", "no leader"))
    loads("After", webhook)
    wait_for("its end", lambda: posted("resolved", "Before"))
    [opened, *_], [closed] = posted("firing", "no leader"), posted("resolved", "Before")
    assert closed["groupKey"] == opened["groupKey"]
    assert closed["title"] == "[CONFIGURATION CHANGED] default: Before is no longer notified here"
    wait_for("the next incident", lambda: len(posted("firing", "no leader")) > 1)
    loads("After", "urls: ['json://127.0.0.1:1/']")
    by_hand = f"close {closed['groupKey']} by hand"
    wait_for("the warning", lambda: by_hand in sidecar.log.read_text())
    [line] = [line for line in sidecar.log.read_text().splitlines() if by_hand in line]
    assert "WARNING" in line
    assert "After CONFIGURATION_CHANGED to ops#0: gave_up: " in line
    receiver.stop()
