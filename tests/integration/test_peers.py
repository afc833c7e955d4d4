"""Sidecars of one cluster on a real ZooKeeper, of which some are cut off from it: who pages, and what is recorded."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sidecar.core.alerting import ledger_document
from tests.integration.conftest import RelayTo
from tests.kit.leaders import Leaders
from tests.kit.relay import Wire
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

RULES = """
rules:
  - {alert: Blind, on: blind, for: 3s, severity: critical}
  - {alert: NoLeader, on: vacant, for: 3s}
  - {alert: ByA, on: leader_changed}
  - {alert: ByB, on: leader_changed}
"""
ROUTES = 'routes: [{{matchers: [alert="ByA"], group_wait: {a}s}}, {{matchers: [alert="ByB"], group_wait: {b}s}}], group_wait: 1s'
"""Each sidecar sends the alert of its name first."""


@pytest.fixture
def cluster(shared_zookeeper: ZooKeeper) -> Iterator[Leaders]:
    """A cluster that is led."""
    running = Leaders(shared_zookeeper.address, f"shared-{uuid4()}")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def wires(shared_zookeeper: ZooKeeper, relay_to: RelayTo) -> list[Wire]:
    """The way of each sidecar to the store."""
    return [relay_to(shared_zookeeper.address) for _ in "ab"]


@pytest.fixture
def sidecars(cluster: Leaders, wires: list[Wire], people: HttpReceiver, tmp_path: Path) -> Iterator[list[Sidecar]]:
    """Two that know of each other."""
    running = []
    for name, wire in zip("ab", wires, strict=True):
        place = f"zookeeper: {{quorum: '{wire.address}', cluster_id: /{cluster.cluster_id}, session_timeout: 4s}}"
        waits = {"group_wait": "1s", "group_interval": "2s"}
        sidecar = Sidecar(tmp_path / name, f"{place}\n{RULES}", [people.url], observer=name, **waits)
        routes = ROUTES.format(**{"a": 5, "b": 5, name: 1})
        sidecar.config.write_text(
            sidecar.config.read_text(encoding="utf-8").replace("group_wait: 1s", routes), encoding="utf-8"
        )
        running.append(sidecar)
    for sidecar in running:
        sidecar.start()
    for sidecar in running:
        sidecar.wait_ready()
    for sidecar in running:
        wait_for("it to know of the other one", partial(knows_both, sidecar, cluster.cluster_id))
    cluster.fail_over()
    for sidecar, alert in zip(running, ("ByB", "ByA"), strict=True):
        wait_for("it to see that the other one has sent", partial(sent_by_another, sidecar, alert))
    yield running
    for sidecar in running:
        sidecar.stop()


def knows_both(sidecar: Sidecar, cluster_id: str) -> bool:
    return f'flink_ha_observers{{cluster_id="{cluster_id}"}} 2.0' in sidecar.get("/metrics")[1]


def published(cluster: Leaders) -> Any:
    """The observers in the ledger."""
    path = f"/flink-ha-sidecar/flink/{cluster.cluster_id}/ledger"
    return ledger_document.read(cluster.client.get(path)[0]).observers


def notifications(sidecar: Sidecar, alert: str) -> list[dict[str, Any]]:
    return [record for record in sidecar.records() if record["type"] == "notification" and record["alert"] == alert]


def sent_by_another(sidecar: Sidecar, alert: str) -> bool:
    return any(record["outcome"] == "already_told" for record in notifications(sidecar, alert))


def pages(people: HttpReceiver, alert: str) -> list[str]:
    return [message.body for message in people.received if f"alert: {alert} " in message.body]


def of_alert(sidecar: Sidecar, name: str) -> list[dict[str, Any]]:
    return [each for each in json.loads(sidecar.get("/api/v1/alerts")[1]) if each["alert"] == name]


@pytest.mark.covers("metric:flink_ha_observers")
def test_the_blind_one_of_two_does_not_page_and_both_blind_page(
    cluster: Leaders, sidecars: list[Sidecar], wires: list[Wire], people: HttpReceiver
) -> None:
    """1 of 2 is recorded, and the page and the API say why it is not sent. When the other one is cut off, too, both page as ever."""
    blind, other = sidecars
    assert {name: each.address for name, each in published(cluster).items()} == {
        name: f"http://{each.host}:{each.port}" for name, each in zip("ab", sidecars, strict=True)
    }
    wires[0].fall_silent()
    wires[0].cut()
    [record] = wait_for("the record", partial(notifications, blind, "Blind"))
    assert (record["reason"], record["observers_sharing"], record["observers_connected"]) == (
        *("SUPPRESSED_BY_OBSERVERS", 1, 2),
    )
    [alert] = of_alert(blind, "Blind")
    assert (alert["state"], alert["reason"]) == ("outvoted", "another observer can read it")
    assert "another observer can read it" in blind.get("/")[1]
    cluster.fail_over()
    wait_for("the other one to have seen it", lambda: any(cluster.present in url for url in other.leader_addresses()))
    assert pages(people, "Blind") == []

    wires[1].fall_silent()
    wires[1].cut()
    wait_for("both to page", lambda: len(pages(people, "Blind")) == 2, 60)
    assert ["(2 of 2 observers)" in page for page in pages(people, "Blind")] == [True, True], pages(people, "Blind")


def test_a_blind_one_pages_when_the_other_one_has_ended(
    sidecars: list[Sidecar], wires: list[Wire], people: HttpReceiver
) -> None:
    """Nobody can say any more that the store can be read."""
    blind, other = sidecars
    wires[0].fall_silent()
    wires[0].cut()
    wait_for("the record", partial(notifications, blind, "Blind"))
    other.stop()
    [page] = wait_for("the page", partial(pages, people, "Blind"))
    assert "(only this observer: the other one does not answer)" in page


def test_a_vacancy_says_how_many_see_it(cluster: Leaders, sidecars: list[Sidecar], people: HttpReceiver) -> None:
    """One message of both, with 2 of 2."""
    assert len(sidecars) == 2
    cluster.vacate()
    [page] = wait_for("the page", partial(pages, people, "NoLeader"))
    assert "JobManager: no leader since" in page
    assert "(2 of 2 observers)" in page
