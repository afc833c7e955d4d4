"""The checks where a server is no ZooKeeper, is late, or wants TLS: they end in time, and nothing passes that needs an answer."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.ha.zookeeper_checks import ZOOKEEPER_CHECKS
from sidecar.drivers.zookeeper import ensemble_probe
from sidecar.drivers.zookeeper.ensemble_probe import EnsembleProbe
from sidecar.settings import TlsSettings, ZooKeeperSettings
from tests.kit.certificates import Authority
from tests.kit.commands_scene import JobManagers
from tests.kit.secured_zookeeper import SecuredZooKeeper
from tests.kit.serving import serving
from tests.kit.strange_servers import answering, endless, garbage, silent, trickling
from tests.kit.waiting import LOADED_MACHINE_SECONDS
from tests.kit.zookeeper_findings import findings, led, verdicts
from tests.lab.zookeeper import ZooKeeper

PASS, RISK, UNKNOWN = CheckVerdict.PASS, CheckVerdict.RISK, CheckVerdict.UNKNOWN


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (silent, "it has not answered in 0.5 s"),
        (garbage, "it does not speak ZooKeeper's protocol"),
        (endless, "it does not speak ZooKeeper's protocol"),
        (trickling, "it has not answered in 0.5 s"),
    ],
)
def test_a_server_that_is_no_zookeeper_is_not_waited_for(
    behaviour: Callable[[socket.socket], None], reason: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it answers, or never does: nothing passes that needs an answer."""
    monkeypatch.setattr(ensemble_probe, "_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(ensemble_probe, "_SECONDS", 3.0)
    with answering(behaviour) as address:
        begun = time.monotonic()
        results = findings(address, place)
        assert time.monotonic() - begun < 7 + LOADED_MACHINE_SECONDS
    assert verdicts(results, PASS) == {"shared_cluster_id"}
    assert verdicts(results, RISK) == set()
    assert reason in results["zookeeper_servers"].text
    assert all(result.text.isprintable() for result in results.values())


def test_one_strange_server_beside_a_good_one(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and all else is read."""
    assert orders.leader
    monkeypatch.setattr(ensemble_probe, "_ANSWER_SECONDS", 1.0)
    with answering(silent) as address:
        results = findings(f"{shared_zookeeper.address},{address}", place)
    assert results["zookeeper_servers"].text == (
        f"1 of 2 servers opened no session: {address} (it has not answered in 1 s)"
    )
    assert results["standby"].verdict is PASS


def test_what_is_late_passes_nothing(
    shared_zookeeper: ZooKeeper, place: str, orders: JobManagers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither after the time for all of it, nor after `stop`. That blames no server."""
    assert orders.leader
    monkeypatch.setattr(ensemble_probe, "_SECONDS", 0.0)
    monkeypatch.setattr(ensemble_probe, "_SERVERS_SECONDS", -1.0)
    late = findings(shared_zookeeper.address, place)
    assert verdicts(late, PASS) == {"shared_cluster_id"}
    assert verdicts(late, RISK) == set()
    monkeypatch.undo()
    cluster = ZooKeeperSettings(shared_zookeeper.address, f"/flink/{place}", place, 10.0, 5.0, True)
    probe = EnsembleProbe(cluster, lambda: 0)
    probe.stop()
    facts = probe.read()
    stopped = {name: check(facts).verdict for name, check in ZOOKEEPER_CHECKS.items()}
    assert {name for name, verdict in stopped.items() if verdict is not UNKNOWN} == {"shared_cluster_id"}


def test_a_host_without_a_port_is_zookeeper_s_own_port(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for Flink: the configuration keeps it without."""
    monkeypatch.setattr(ensemble_probe, "_SECONDS", 0.0)
    asked: list[Any] = []

    def refuse(_security: Any, address: tuple[str, int], host: str, _timeout: float) -> socket.socket:
        asked.append((address, host))
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("sidecar.drivers.zookeeper.security.Security.connect", refuse)
    findings("127.0.0.1,[::1]:2182", place)
    assert {(("127.0.0.1", 2181), "127.0.0.1"), (("::1", 2182), "::1")} <= {*asked}


def test_servers_with_tls(tmp_path: Path, flink_2_home: Path, java: Path, place: str) -> None:
    """They are asked as the driver asks them; without TLS they are not reached, and nothing passes."""
    authority = Authority(tmp_path / "authority")
    identity = authority.issue("server", "IP:127.0.0.1")
    secured = SecuredZooKeeper(
        tmp_path / "server", flink_2_home, java, authority, identity, config="ssl.clientAuth=none\n"
    )
    with serving(secured) as server, led(server.address, place):
        results = findings(server.secure_address, place, tls=TlsSettings(authority.ca))
        assert verdicts(results, RISK) == {"ensemble_size", "open_acls"}
        assert results["zookeeper_servers"].verdict is PASS
        plain = findings(server.secure_address, place)
    assert verdicts(plain, PASS) == {"shared_cluster_id"}
