"""Silences in a real store: one holds for every sidecar of the cluster, through restarts, outages, and clocks that differ.

The figures of docs/project/benchmarks.md#silences are from the logs of these tests (`--log-cli-level=INFO`).
"""

import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from sidecar.core.alerting.active_silences import INTERVAL
from sidecar.core.moment import SECOND
from sidecar.drivers.kubernetes import Access
from sidecar.drivers.kubernetes.kubernetes_ledger import KubernetesLedger
from sidecar.drivers.zookeeper.zookeeper_ledger import ZooKeeperLedger
from sidecar.ports import LedgerStore
from tests.integration.conftest import RelayTo
from tests.kit.cluster import CLUSTER, job_manager
from tests.kit.config_maps import ApiServerWriter, ConfigMaps
from tests.kit.fake_flink import Flink
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.leaders import Leaders
from tests.kit.relay import Wire
from tests.kit.sidecar_process import Sidecar, command
from tests.kit.waiting import LOADED_MACHINE_SECONDS, wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

HOUR: Final = 3600
_BLIND: Final = "rules: [{alert: Blind, on: blind, for: 1s}]"
_CLOCK: Final = """\
import os, time
_real, _ahead = time.time_ns, int(os.environ["AHEAD_SECONDS"]) * 1_000_000_000
time.time_ns = lambda: _real() + _ahead
"""
"""A process cannot have a wall clock of its own: what ours is made of is set ahead instead."""
Start = Callable[..., Sidecar]
_log = logging.getLogger("tests")


def write(store: LedgerStore, content: bytes) -> None:
    assert store.write(content, store.read())
    store.stop()


class InZooKeeper:
    """A cluster of its own in the shared ZooKeeper."""

    def __init__(self, server: ZooKeeper) -> None:
        self.address = server.address
        self.cluster_id = f"test-{uuid4()}"
        self._leaders = Leaders(server.address, self.cluster_id)
        self._leaders.start()

    def lines(self, address: str) -> str:
        return f"zookeeper: {{quorum: '{address}', cluster_id: /{self.cluster_id}, session_timeout: 4s}}"

    def fail_over(self) -> None:
        self._leaders.fail_over()

    def vacate(self) -> None:
        self._leaders.vacate()

    def put(self, content: bytes) -> None:
        """What somebody else may write in place of the silences."""
        write(ZooKeeperLedger(self.address, f"/flink/{self.cluster_id}", name="silences"), content)

    def stop(self) -> None:
        self._leaders.stop()


class InKubernetes:
    """A namespace of its own on the shared API server, with the sidecar's permissions."""

    cluster_id = CLUSTER

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self.address = kubernetes.server.address
        self._namespace = kubernetes.namespace(f"test-{uuid4()}")
        self._namespace.allow("reader", "get", "list", "watch", "create", "patch")
        server, name = kubernetes.server, self._namespace.name
        writer = ApiServerWriter(server.url, kubernetes.authority.ca, "admin-of-the-tests", name)
        self._flink = Flink(ConfigMaps(writer=writer, duration="PT600S"))
        self._term = 1
        first = job_manager("jm-00001", 1)
        self._flink.grant(first).submit().publish_all(first)

    def lines(self, address: str) -> str:
        kubeconfig = self._kubernetes.kubeconfig("reader", server=f"https://{address}")
        place = {"cluster_id": CLUSTER, "namespace": self._namespace.name, "kubeconfig": str(kubeconfig)}
        return f"kubernetes: {json.dumps(place)}"

    def fail_over(self) -> None:
        self._flink.vacate()
        self._term += 1
        leader = job_manager(f"jm-{self._term:05}", self._term)
        self._flink.grant(leader).publish_all(leader)

    def vacate(self) -> None:
        self._flink.vacate()

    def put(self, content: bytes) -> None:
        write(
            KubernetesLedger(Access(self._kubernetes.kubeconfig()), self._namespace.name, CLUSTER, name="silences"),
            content,
        )

    def stop(self) -> None:
        pass


Place = InZooKeeper | InKubernetes


@pytest.fixture(params=["shared_zookeeper", "kubernetes"], ids=["zookeeper", "kubernetes"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    server = request.getfixturevalue(request.param)
    running = InZooKeeper(server) if isinstance(server, ZooKeeper) else InKubernetes(server)
    yield running
    running.stop()


@pytest.fixture
def wire(place: Place, relay_to: RelayTo) -> Wire:
    """A connection to the store that can be hurt."""
    return relay_to(place.address)


@pytest.fixture
def start(place: Place, people: HttpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a sidecar whose wall clock is so many seconds ahead; or again the one that was killed."""
    (tmp_path / "sitecustomize.py").write_text(_CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("AHEAD_SECONDS", "0")
    running: dict[str, Sidecar] = {}

    def started(name: str, *, ahead: int = 0, address: str = "", more: str = "") -> Sidecar:
        if name not in running:
            lines = f"{place.lines(address or place.address)}\n{more}"
            waits = {"group_wait": "1s", "group_interval": "2s"}
            running[name] = Sidecar(tmp_path / name, lines, [people.url], observer=name, **waits)
        sidecar = running[name]
        monkeypatch.setenv("AHEAD_SECONDS", str(ahead))
        sidecar.start()
        monkeypatch.setenv("AHEAD_SECONDS", "0")
        return sidecar

    yield started
    for sidecar in running.values():
        sidecar.stop()


def silence(sidecar: Sidecar, *arguments: str) -> str:
    """What the command prints, which succeeds."""
    verb, *rest = arguments
    ended = command("silence", verb, "--config", str(sidecar.config), *rest)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout.strip()


def added(sidecar: Sidecar, cluster_id: str) -> str:
    matcher = f'cluster_id="{cluster_id}"'
    arguments = ("--matcher", matcher, "--duration", "2h", "--comment", "upgrade to 2.3", "--author", "ann")
    return silence(sidecar, "add", *arguments)


def shown(sidecar: Sidecar) -> list[dict[str, Any]]:
    """The active silences, as the API has them."""
    found = json.loads(sidecar.get("/api/v1/silences")[1] or "[]")
    return [each for each in found if each["state"] == "active"]


def hidden(sidecar: Sidecar, silence_id: str) -> set[str]:
    """The alerts that the records say the silence has hidden."""
    return {
        record["id"]
        for record in sidecar.records()
        if record["type"] == "notification" and record.get("silence_id") == silence_id
    }


def knows(sidecar: Sidecar, silence_id: str) -> bool:
    return [each["id"] for each in shown(sidecar)] == [silence_id]


def hides(sidecar: Sidecar, silence_id: str, number: int) -> bool:
    return len(hidden(sidecar, silence_id)) == number


def has_empty_outbox(sidecar: Sidecar) -> bool:
    return "flink_ha_outbox_pending 0.0" in sidecar.get("/metrics")[1]


def test_one_silence_holds_for_every_sidecar(place: Place, people: HttpReceiver, start: Start) -> None:
    """Whose clocks differ by two hours, and one of which is killed. What it hides each of them records; when it is ended, one notifies."""
    sidecars = [start(name, ahead=ahead) for name, ahead in (("a", -HOUR), ("b", 0), ("c", HOUR))]
    for sidecar in sidecars:
        sidecar.wait_ready()
    began = time.monotonic()
    made = added(sidecars[0], place.cluster_id)
    took = time.monotonic() - began
    for sidecar in sidecars:
        wait_for("it to be known", partial(knows, sidecar, made))
    learned = time.monotonic() - began - took
    assert learned < INTERVAL / SECOND + LOADED_MACHINE_SECONDS
    _log.info("written in %.1f s, known to all in %.1f s more", took, learned)

    place.fail_over()
    for sidecar in sidecars:
        wait_for("its record", partial(hides, sidecar, made, 3))
    sidecars[1].kill()
    start("b").wait_ready()
    place.fail_over()
    for sidecar in sidecars:
        wait_for("its record", partial(hides, sidecar, made, 6))
    assert people.received == []

    header, row = silence(sidecars[1], "list").splitlines()
    assert header.split() == ["ID", "Matchers", "Ends", "At", "(UTC)", "Created", "By", "Hid", "Comment"]
    assert row.startswith(f"{made[:8]}  cluster_i")  # as long as 80 columns allow
    assert row.endswith("  ann         6    upgrade to 2.3")
    assert shown(sidecars[1])[0]["hid"] == 6
    page = sidecars[1].get("/")[1]
    assert "upgrade to 2.3" in page
    reason = 'reason="SUPPRESSED_BY_SILENCE",receiver="ops"} '
    assert f'outcome="suppressed",{reason}3.0' in sidecars[1].get("/metrics")[1], "since b was started again"

    assert silence(sidecars[0], "expire", made[:8]) == made
    place.fail_over()
    wait_for("the message", lambda: people.received)
    for sidecar in sidecars:
        wait_for("an empty outbox", partial(has_empty_outbox, sidecar))
    assert len([message for message in people.received if "FlinkLeaderChanged (FIRST)" in message.body]) == 1
    assert silence(sidecars[0], "list").splitlines() == ["ID  Matchers  Ends At (UTC)  Created By  Hid  Comment"]
    assert f"\n{made[:8]}  " in silence(sidecars[0], "list", "--expired")


def test_an_alert_that_still_fires_is_notified_when_its_silence_is_ended(
    place: Place, people: HttpReceiver, start: Start
) -> None:
    """A vacancy that goes on."""
    sidecar = start("a", more="rules: [{alert: NoLeader, on: vacant, for: 1s}]")
    sidecar.wait_ready()
    made = added(sidecar, place.cluster_id)
    place.vacate()
    wait_for("its record", lambda: hidden(sidecar, made))
    assert people.received == []
    silence(sidecar, "expire", made)
    wait_for("the message", lambda: people.received)
    assert ["NoLeader (FIRST)" in message.body for message in people.received] == [True]


@pytest.mark.parametrize("content", [b"", b"garbage"], ids=["lost", "garbled"])
def test_a_document_that_is_lost_or_garbled_hides_nothing(
    content: bytes, place: Place, people: HttpReceiver, start: Start
) -> None:
    """That is logged once, and commands say it in one line."""
    sidecar = start("a")
    sidecar.wait_ready()
    made = added(sidecar, place.cluster_id)
    wait_for("it to be known", partial(knows, sidecar, made))
    place.put(content)
    wait_for("it to be known no more", lambda: not shown(sidecar))
    place.fail_over()
    wait_for("the message", lambda: people.received)
    assert hidden(sidecar, made) == set()
    time.sleep(INTERVAL / SECOND)
    assert sidecar.log.read_text().count("the document of silences is not used") == bool(content)
    if content:
        ended = command("silence", "list", "--config", str(sidecar.config))
        assert (ended.returncode, ended.stdout) == (3, "")
        problem = f"the silences could not be read for cluster {place.cluster_id}: it is not a document of silences: delete it"
        assert ended.stderr == f"flink-ha-sidecar: {problem}\n"


def test_a_known_silence_holds_while_the_store_is_out_of_reach(
    place: Place, people: HttpReceiver, start: Start, wire: Wire
) -> None:
    """Also after a kill. Who starts then with an empty folder knows of none, and notifies."""
    sidecar = start("a", address=wire.address, more=_BLIND)
    sidecar.wait_ready()
    made = added(sidecar, place.cluster_id)
    wait_for("it to be known", partial(knows, sidecar, made))
    wait_for("an empty outbox", partial(has_empty_outbox, sidecar))
    people.received.clear()  # it was blind until it was connected
    wire.fall_silent()
    wire.cut()
    wait_for("its record", lambda: hidden(sidecar, made))
    sidecar.kill()
    start("a")
    wait_for("it to be known", lambda: shown(sidecar))
    wait_for("the store to be missed", lambda: "flink_ha_silences_up" in sidecar.get("/metrics")[1])
    assert people.received == []
    fresh = start("fresh", address=wire.address, more=_BLIND)
    wait_for("the message", lambda: people.received)
    assert {message.body.partition("observer: ")[2].partition("\n")[0] for message in people.received} == {"fresh"}
    assert shown(fresh) == []
    log = sidecar.log.read_text()
    assert log.count("known silences hold") <= 4, "once each way in which it failed, for each process"


def test_the_http_port_creates_no_silence(place: Place, start: Start) -> None:
    """It has no login: it shows them, and nothing else."""
    sidecar = start("a")
    sidecar.wait_ready()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        request = urllib.request.Request(f"http://127.0.0.1:{sidecar.port}/api/v1/silences", data=b"{}", method=method)
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=5)
        with error.value as answer:
            assert answer.code == 405
    assert shown(sidecar) == []
