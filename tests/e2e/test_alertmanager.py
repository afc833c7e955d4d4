"""Three sidecars and two real Alertmanagers: one alert with one set of labels, which survives the restart of everybody."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.kit.alertmanager import Alertmanager
from tests.kit.leaders import Leaders
from tests.kit.receivers import webhook
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

CONFIG = """\
zookeeper: {{quorum: '{address}'}}
rules:
- {{alert: FlinkLeaderChanged, on: leader_changed}}
- {{alert: FlinkNoLeader, on: vacant, for: 1s, severity: critical}}
route: {{receiver: am, group_by: [cluster_id], group_wait: 1s}}
receivers: [{{name: am, alertmanager: {{urls: [{urls}]}}}}]
"""
COMPONENTS = {"dispatcher", "resource_manager", "rest_server", "job"}
LABELS = {"alertname", "cluster_id", "component", "env", "severity", "store"}


@pytest.fixture
def notified() -> Iterator[HttpReceiver]:
    """What the Alertmanagers notify."""
    with webhook() as receiver:
        yield receiver


@pytest.fixture
def alertmanagers(tmp_path: Path, notified: HttpReceiver) -> Iterator[list[Alertmanager]]:
    """Two, which do not know each other."""
    running = [Alertmanager(tmp_path / f"am-{number}", f"http://{notified.address}/{number}") for number in range(2)]
    for server in running:
        server.start()
    yield running
    for server in running:
        server.stop()


@pytest.fixture
def sidecars(
    zookeeper: ZooKeeper, leaders: Leaders, alertmanagers: list[Alertmanager], tmp_path: Path
) -> Iterator[list[Sidecar]]:
    """Three, which have seen the first leader."""
    assert leaders.present
    config = CONFIG.format(address=zookeeper.address, urls=", ".join(server.url for server in alertmanagers))
    running = [Sidecar(tmp_path / name, config, [], observer=name) for name in ("sidecar-0", "sidecar-1", "sidecar-2")]
    for sidecar in running:
        sidecar.start()
    for sidecar in running:
        sidecar.wait_ready()
    yield running
    for sidecar in running:
        sidecar.end()


def fires(name: str, alertmanagers: list[Alertmanager]) -> bool:
    """Whether it fires everywhere for each component that it is about, and nothing of it is there twice."""
    wanted = COMPONENTS if name == "FlinkNoLeader" else COMPONENTS - {"job"}
    for server in alertmanagers:
        label_sets = [alert["labels"] for alert in server.alerts(f"alertname={name}")]
        assert len({json.dumps(labels, sort_keys=True) for labels in label_sets}) == len(label_sets)
        assert {labels["component"] for labels in label_sets} <= wanted
        if {labels["component"] for labels in label_sets} != wanted:
            return False
        assert all({*labels} - {"job_id"} == LABELS for labels in label_sets)
        assert len(label_sets) == len(wanted)
    return True


def is_over(name: str, alertmanagers: list[Alertmanager]) -> bool:
    return not any(server.alerts(f"alertname={name}") for server in alertmanagers)


def states(server: Alertmanager) -> set[str]:
    return {alert["status"]["state"] for alert in server.alerts("alertname=FlinkNoLeader")}


def was_notified(notified: HttpReceiver, name: str, status: str) -> bool:
    payloads = [json.loads(message.raw) for message in [*notified.received]]
    return any(payload["status"] == status and payload["commonLabels"]["alertname"] == name for payload in payloads)


def delivered(sidecar: Sidecar) -> set[tuple[str, str]]:
    """Destinations and reasons."""
    records = [record for record in sidecar.records() if record["type"] == "notification"]
    return {(r["destination"], r["reason"]) for r in records if r["outcome"] == "delivered"}


def test_an_alert_is_one_everywhere_and_survives_restarts(
    leaders: Leaders, alertmanagers: list[Alertmanager], sidecars: list[Sidecar], notified: HttpReceiver
) -> None:
    """A failover fires, and is notified by the Alertmanagers; so is a vacancy. It is silenced there, outlives two killed sidecars and the
    restart of an Alertmanager, goes on after our own restart, and is ended by whoever is left.
    """
    leaders.fail_over()
    wait_for("the failover everywhere", partial(fires, "FlinkLeaderChanged", alertmanagers))
    wait_for("a notification", partial(was_notified, notified, "FlinkLeaderChanged", "firing"))
    [changed, *_] = alertmanagers[0].alerts("alertname=FlinkLeaderChanged")
    assert "failed over" in changed["annotations"]["summary"]
    assert re.search(r"jm-00001:\d+ → jm-00002:\d+", changed["annotations"]["description"])

    leaders.vacate()
    wait_for("the vacancy everywhere", partial(fires, "FlinkNoLeader", alertmanagers))
    for server in alertmanagers:
        server.amtool("silence", "add", "--duration=1h", "--comment=known", "--author=me", "alertname=FlinkNoLeader")
    wait_for("the silence", lambda: states(alertmanagers[0]) == {"suppressed"})

    for sidecar in sidecars:
        sidecar.kill()
    sidecars[0].start()
    alertmanagers[1].stop()
    alertmanagers[1].start()
    assert is_over("FlinkNoLeader", alertmanagers[1:])  # it keeps its silences, and no alert
    wait_for("what fires to be there again", partial(fires, "FlinkNoLeader", alertmanagers), 120)
    wait_for("its silence, which it kept", lambda: states(alertmanagers[1]) == {"suppressed"})

    leaders.elect()
    wait_for("the end of the vacancy", partial(is_over, "FlinkNoLeader", alertmanagers))
    ends = {("am#0", "RESOLVED"), ("am#1", "RESOLVED")}
    wait_for("the records", lambda: ends <= delivered(sidecars[0]))
    assert not any(reason == "RESEND" for _, reason in delivered(sidecars[0]))


def test_one_that_is_down_gets_what_it_missed(
    leaders: Leaders, alertmanagers: list[Alertmanager], sidecars: list[Sidecar]
) -> None:
    """Each is a destination of its own: the other one has it meanwhile. An event fires there although it is over."""
    alertmanagers[1].stop()
    leaders.fail_over()
    wait_for("the failover at one", partial(fires, "FlinkLeaderChanged", alertmanagers[:1]))
    alertmanagers[1].start()
    wait_for("the failover everywhere", partial(fires, "FlinkLeaderChanged", alertmanagers))
    for sidecar in sidecars:
        wait_for("both to have it from everybody", partial(_has_notified_both, sidecar))
        assert sidecar.stop() == 0


def _has_notified_both(sidecar: Sidecar) -> bool:
    return {"am#0", "am#1"} <= {destination for destination, reason in delivered(sidecar) if reason == "FIRST"}
