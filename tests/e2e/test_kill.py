"""kill -9 of the sidecar at any moment: nothing that was recorded is lost, nothing is twice in the audit, every alert is sent."""

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kazoo.client import KazooClient

from sidecar.core.messages import DUPLICATE_NOTE
from sidecar.lab.receivers import HttpReceiver
from sidecar.lab.zookeeper import ZooKeeper
from tests.e2e.sidecar import Sidecar, command, wait_for
from tests.shell.scenes import leader_bytes

KILLS = 50
NAMES = ("resource_manager", "dispatcher", "rest_server", "job-" + "ab" * 16)

pytestmark = [pytest.mark.spark]


class Flapping:
    """A Flink cluster's leader nodes, written as JobManagers that fail over and over would write them."""

    def __init__(self, address: str) -> None:
        self._client = KazooClient(address)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flapping")
        self.term = 0

    def start(self) -> None:
        self._client.start()
        self._client.ensure_path("/flink/default/leader/latch")
        self._client.ensure_path("/flink/default/execution-plans/" + "ab" * 16)
        self.fail_over()
        self._thread.start()

    def settle(self) -> None:
        """One last failover, and its leaders stay."""
        self._stopping.set()
        self._thread.join()
        self.fail_over()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._client.stop()
        self._client.close()

    def fail_over(self) -> None:
        """The leader is gone; a moment later the next one has written itself everywhere."""
        paths = [f"/flink/default/leader/{name}/connection_info" for name in NAMES]
        for path in paths if self.term else ():
            self._client.delete(path)
        self._stopping.wait(0.1)
        self.term += 1
        for path in paths:
            self._client.create(
                path,
                leader_bytes(f"pekko.tcp://flink@jm-{self.term % 2}:6123/x", self.term),
                ephemeral=True,
                makepath=True,
            )

    def _run(self) -> None:
        while not self._stopping.wait(0.6):
            self.fail_over()


@pytest.fixture
def flapping(zookeeper: ZooKeeper) -> Iterator[Flapping]:
    cluster = Flapping(zookeeper.address)
    cluster.start()
    yield cluster
    cluster.close()


def test_fifty_kills_lose_nothing_and_repeat_nothing(zookeeper: ZooKeeper, flapping: Flapping, tmp_path: Path) -> None:
    """The chain of records has no missing link, the audit holds each id once, and each alert arrived."""
    receiver = HttpReceiver(answer_after=0.5)  # many a kill finds an alert that has arrived, and nobody knows it yet
    receiver.start()
    sidecar = Sidecar(
        tmp_path,
        f"zookeeper: {{quorum: '{zookeeper.address}'}}",
        [receiver.url],
        group_wait="100ms",
        group_interval="1s",
    )
    moments = random.Random(20261120)
    for _ in range(KILLS):
        sidecar.start()
        if moments.random() < 0.8:  # the others die while they start
            sidecar.wait_ready()
        time.sleep(moments.uniform(0.0, 1.5))  # the moment of the kill is the experiment
        sidecar.kill()
    sidecar.start()
    sidecar.wait_ready()
    flapping.settle()
    wait_for("the last leader", lambda: _last_leader(sidecar)[0] == flapping.term)
    wait_for("the last alert", lambda: any(_last_leader(sidecar)[1] in message.body for message in receiver.received))
    wait_for("every alert", lambda: "flink_ha_outbox_pending 0.0" in sidecar.get("/metrics")[1])
    assert sidecar.stop() == 0
    receiver.stop()

    records = sidecar.records()
    _assert_no_link_is_missing([r for r in records if r["type"] == "transition"])
    _assert_each_alert_arrived([r for r in records if r["type"] == "notification"], receiver)
    _assert_the_audit_holds_each_once(records, sidecar, tmp_path / "audit")


def _last_leader(sidecar: Sidecar) -> tuple[int, str]:
    """The newest leader of the dispatcher, and when it was seen."""
    last = [t for t in sidecar.transitions() if t["component"] == "dispatcher" and t["after_session_id"]][-1]
    return UUID(last["after_session_id"]).int, last["observed_at"]


def _assert_no_link_is_missing(transitions: list[dict[str, Any]]) -> None:
    """What each transition begins with is what the one before ended with, or what was last known when sight was lost."""
    by_component: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for transition in transitions:
        by_component[transition["component"]].append(transition)
    assert len(by_component) == len(NAMES)
    for chain in by_component.values():
        assert len(chain) > KILLS
        last_known = None
        for before, after in zip([None, *chain], chain, strict=False):
            assert after["last_known_session_id"] == last_known
            if after["kind"] != "DISCOVERED":
                assert before is not None
                assert after["before_session_id"] == before["after_session_id"]
            last_known = after["after_session_id"] or last_known


def _assert_each_alert_arrived(notifications: list[dict[str, Any]], receiver: HttpReceiver) -> None:
    queued = [n for n in notifications if n["outcome"] == "queued"]
    # Killed between the mark in the ledger and the record of it, the next process finds that it has told this already.
    settled = [n["delivery_id"] for n in notifications if n["outcome"] in {"delivered", "already_told"}]
    assert len(settled) > KILLS / 5
    assert sorted(settled) == sorted(n["delivery_id"] for n in queued)
    plain = [message.body for message in receiver.received if DUPLICATE_NOTE not in message.body]
    assert len(plain) == len(set(plain)), "an alert came twice without a label"
    told = {message.body.replace(f"\n\n{DUPLICATE_NOTE}", "") for message in receiver.received}
    assert len(told) == len(queued) < len(receiver.received), "no kill came between an alert's arrival and its answer"


def _assert_the_audit_holds_each_once(records: list[dict[str, Any]], sidecar: Sidecar, audit: Path) -> None:
    taken = command("audit", "ingest", "--spool", str(sidecar.spool), "--audit", str(audit))
    assert taken.returncode == 0, taken.stderr
    answer = command("audit", "sql", "--audit", str(audit), "SELECT id FROM transitions", "--output", "json")
    assert answer.returncode == 0, answer.stderr
    kept = [json.loads(line)["id"] for line in answer.stdout.splitlines()]
    assert sorted(kept) == sorted(r["id"] for r in records if r["type"] == "transition")
