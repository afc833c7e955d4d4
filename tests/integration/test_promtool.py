"""Prometheus' own linter reads what `run` publishes."""

import subprocess
from pathlib import Path

from tests.kit.debian import find_tool
from tests.kit.leaders import Leaders
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

_CHECK_SECONDS = 60.0


def test_promtool_accepts_the_metrics_of_a_running_sidecar(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """`promtool check metrics` has nothing to say about a real answer of /metrics with leaders, transitions and notifications in it."""
    promtool = find_tool("promtool", "prometheus")
    receiver = HttpReceiver()
    receiver.start()
    leaders = Leaders(zookeeper.address)
    sidecar = Sidecar(
        tmp_path / "sidecar", f"zookeeper: {{quorum: '{zookeeper.address}'}}", [receiver.url], group_wait="100ms"
    )
    try:
        leaders.start()
        sidecar.start().wait_ready()
        leaders.fail_over()
        wait_for("a delivery in the metrics", lambda: 'outcome="delivered"' in sidecar.get("/metrics")[1])
        metrics = sidecar.get("/metrics")[1]
    finally:
        sidecar.stop()
        leaders.stop()
        receiver.stop()
    checked = subprocess.run(
        [str(promtool), "check", "metrics"],
        input=metrics,
        capture_output=True,
        text=True,
        timeout=_CHECK_SECONDS,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
