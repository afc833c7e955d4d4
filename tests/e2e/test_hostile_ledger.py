"""Whoever writes to the ledger of a running sidecar without end silences nobody: alerts and heartbeats arrive, the process lives."""

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.kit.leaders import await_election
from tests.kit.repeating import repeating
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

pytestmark = pytest.mark.e2e

LEDGER = "/flink-ha-sidecar/flink/default/ledger"
NESTED = b'{"began": 1, "x": ' + b"[" * 1200 + b"]" * 1200 + b"}"
RULES = [f"NoLeader{number}" for number in range(3)]


def test_a_ledger_that_is_poisoned_for_ever_silences_nobody(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """Three rules fire in a cluster without leaders, each in a group of its own; there is a dead man's switch."""
    receiver = HttpReceiver()
    receiver.start()
    sidecar = Sidecar(tmp_path, f"zookeeper: {{quorum: '{zookeeper.address}'}}", [])
    rules = ", ".join(f"{{alert: {rule}, on: vacant, for: 1s}}" for rule in RULES)
    sidecar.config.write_text(
        sidecar.config.read_text()
        + f"rules: [{rules}]\nroute: {{receiver: ops, group_wait: 0s, group_by: [alert]}}\n"
        + f"receivers: [{{name: ops, urls: ['{receiver.url}']}}, {{name: dead, urls: ['{receiver.url}'], heartbeat: 10s}}]\n"
    )
    await_election(zookeeper.address)
    client = KazooClient(zookeeper.address)
    client.start()
    try:
        client.create(LEDGER, NESTED, makepath=True)
        with repeating(lambda _: client.set(LEDGER, NESTED), every=0.02):
            sidecar.start().wait_ready()
            wait_for(  # each waits 15 s for the ledger, and longer where a busy machine takes long to read it
                "every alert", lambda: sum("no leader for" in m.body for m in receiver.received) >= len(RULES), 240
            )
            wait_for("a heartbeat", lambda: [m for m in receiver.received if "[HEARTBEAT]" in m.title], 240)
        assert sidecar.get("/livez") == (200, "ok\n")
        assert "Traceback" not in sidecar.log.read_text()
        assert sidecar.stop() == 0
    finally:
        sidecar.end()
        client.stop()
        client.close()
        receiver.stop()
