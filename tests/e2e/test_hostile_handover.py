"""Whoever writes the handover silences no sidecar that finds it, and nothing of what it wrote is written on."""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from sidecar.clock import Clock
from sidecar.lab.zookeeper import ZooKeeper
from tests.kit.leaders import Leaders
from tests.kit.receivers import webhook
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for

pytestmark = pytest.mark.e2e

HANDOVER: Final = "/flink-ha-sidecar/flink/default/handover"
OLDER: Final = Path(__file__).parents[1] / "fixtures" / "handovers" / "format-2.json"
"""Rows of the journal, as earlier versions wrote them; newer ones read them too."""
HUGE: Final = 10**18
Rows = list[list[Any]]


def huge_times(rows: Rows) -> Rows:
    """An alert that fires began when no calendar has a day."""
    for kind, _, value in rows:
        for member in value["members"].values() if kind == "group" else ():
            member["alert"]["began"]["wall"] = HUGE
    return rows


def many_alerts(rows: Rows) -> Rows:
    """So many of them that one tick would take 20 s."""
    [group] = [value for kind, _, value in rows if kind == "group"]
    one = next(iter(group["members"].values()))
    ids = [str(UUID(int=number)) for number in range(1, 4001)]
    group["members"] = {alert_id: {**one, "told": False, "alert": {**one["alert"], "id": alert_id}} for alert_id in ids}
    return rows


def forged_plan(rows: Rows) -> Rows:
    """Flink's operator has suspended the job. In ZooKeeper there is no operator."""
    deployment = {"uid": "u", "generation": 2, "suspended": True}
    return [*rows, ["operated", "default", {"deployment": deployment, "unwanted_since": {"steady": 0, "wall": 1}}]]


@pytest.mark.parametrize("poison", [huge_times, many_alerts, forged_plan])
def test_a_poisoned_handover_silences_nobody_and_is_not_written_on(
    zookeeper: ZooKeeper, leaders: Leaders, tmp_path: Path, poison: Callable[[Rows], Rows]
) -> None:
    """All leaders vanish and people are notified; a third sidecar, whose folder is empty too, notifies them of the end."""
    document = json.loads(OLDER.read_text())
    poisoned = {**document, "alive": {**document["alive"], "wall": Clock()().wall}, "rows": poison(document["rows"])}
    content = b64encode(zlib.compress(json.dumps(poisoned).encode(), wbits=31))
    leaders.client.create(HANDOVER, content, makepath=True)
    with webhook() as people:

        def heard(text: str) -> list[str]:
            return [message.title for message in people.received if text in message.title]

        def started(name: str) -> Sidecar:
            sidecar = Sidecar(
                tmp_path / name, f"zookeeper: {{quorum: '{zookeeper.address}'}}", [people.url], observer=name
            )
            with sidecar.config.open("a") as config:
                config.write("rules: [{alert: FlinkNoLeader, on: vacant, for: 1s, severity: critical}]\n")
            sidecar.start()
            sidecar.wait_ready()
            return sidecar

        running = [started("jm-b")]
        try:
            leaders.vacate()
            wait_for("the message", lambda: heard("[DOWN]"))
            assert running[0].get("/livez") == (200, "ok\n")
            assert running[0].stop() == 0
            written = zlib.decompress(b64decode(leaders.client.get(HANDOVER)[0]), wbits=31)
            assert (str(HUGE).encode() in written, json.loads(written).get("operated")) == (False, None)
            assert len(written) < 20_000
            running.append(started("jm-c"))
            leaders.elect()
            wait_for("the end", lambda: heard("[UNCHECKED]"))
            assert running[1].stop() == 0
        finally:
            for sidecar in running:
                if sidecar.process and sidecar.process.poll() is None:
                    sidecar.kill()
