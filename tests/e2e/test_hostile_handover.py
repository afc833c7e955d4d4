"""Whoever writes the handover silences no sidecar that finds it, and nothing of what it wrote is written on."""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from sidecar.core import handover
from sidecar.core.observations import Ticked
from sidecar.runtime.clock import Clock
from tests.kit.leaders import Leaders
from tests.kit.observed_failovers import CLUSTER, PATHS, POLICY, at, first_sight, gone, play
from tests.kit.receivers import webhook
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper

pytestmark = pytest.mark.e2e

HANDOVER: Final = "/flink-ha-sidecar/flink/default/handover"
HUGE: Final = 10**18
Document = dict[str, Any]


def huge_times(document: Document) -> Document:
    """Alerts that fire began when no calendar has a day."""
    for group in document["groups"].values():
        for member in group["members"].values():
            member["alert"]["began"]["wall"] = HUGE
    return document


def many_alerts(document: Document) -> Document:
    """So many of them that one tick would take 20 s."""
    group = next(iter(document["groups"].values()))
    one = next(iter(group["members"].values()))
    ids = [str(UUID(int=number)) for number in range(1, 4001)]
    group["members"] = {alert_id: {**one, "told": False, "alert": {**one["alert"], "id": alert_id}} for alert_id in ids}
    return document


def forged_plan(document: Document) -> Document:
    """Flink's operator has suspended the job. In ZooKeeper there is no operator."""
    return document | {"operated": {"uid": "u", "generation": 2, "unwanted_since": {"steady": 0, "wall": 1}}}


def handed_over() -> Document:
    """By a sidecar that has notified people that nobody leads."""
    ticks = [Ticked(at(100 + second)) for second in (31, 37)]
    state, _ = play([*first_sight(), *(gone(100, path) for path in PATHS), *ticks])
    content = handover.written(CLUSTER, handover.cluster_handover(POLICY, state, CLUSTER, at(140)))
    document: Document = json.loads(zlib.decompress(b64decode(content), wbits=31))
    return document


@pytest.mark.parametrize("poison", [huge_times, many_alerts, forged_plan])
def test_a_poisoned_handover_silences_nobody_and_is_not_written_on(
    zookeeper: ZooKeeper, leaders: Leaders, tmp_path: Path, poison: Callable[[Document], Document]
) -> None:
    """All leaders vanish and people are notified; a third sidecar, whose folder is empty too, notifies them of the end."""
    document = handed_over()
    poisoned = poison({**document, "alive": {**document["alive"], "wall": Clock()().wall}})
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
            sidecar.start().wait_ready()
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
                sidecar.end()
