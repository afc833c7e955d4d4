"""kill -9 of the sidecar at any moment: nothing that was recorded is lost, nothing is twice in the audit, every alert is sent."""

import random
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow.dataset
import pytest

from sidecar.core.cluster.record_lines import DUPLICATE_NOTE
from tests.kit.cluster import ALL_FOUR
from tests.kit.leaders import Flapping
from tests.kit.sidecar_process import Sidecar, command
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

CHAINS = 3
"""Each a cluster, its sidecar and its receiver: three side by side take a third of the time."""
KILLS = 17
"""Of each sidecar: 51 of all."""
_PATIENCE_SECONDS = 240.0
"""A busy machine takes long to send what has piled up during the kills, and waits for the claims of the killed in between."""

pytestmark = [pytest.mark.spark]


class Chain:
    """A flapping cluster, and a sidecar that is killed over and over: what one of its processes leaves, the next one goes on from."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper, number: int) -> None:
        name = f"cluster-{number}"
        self.flapping = Flapping(zookeeper.address, name)
        self.flapping.start()
        self.receiver = HttpReceiver()
        self.receiver.answer_after = 0.5  # many kills come when an alert has arrived and is not confirmed yet
        self.receiver.start()
        self.sidecar = Sidecar(
            folder / name,
            f"zookeeper: {{quorum: '{zookeeper.address}', cluster_id: /{name}}}",
            [self.receiver.url],
            observer=f"jm-{number}",
            group_wait="100ms",
            group_interval="1s",
        )
        self._moments = random.Random(20261120 + number)

    def run(self) -> None:
        """All kills; then one process that lives until every alert is sent, and ends in order."""
        for number in range(KILLS):
            self.sidecar.start()
            if number % 4 == 3:
                self._wait_for_an_alert()
            else:
                if self._moments.random() < 0.75:  # the others die while they start
                    self.sidecar.wait_ready()
                time.sleep(self._moments.uniform(0.0, 1.5))  # the moment of the kill is the experiment
            self.sidecar.kill()
        self.sidecar.start().wait_ready()
        self.flapping.settle()
        leader = wait_for("the last leader", self._last_leader, _PATIENCE_SECONDS)
        messages = self.receiver.received
        wait_for(
            "the last alert", lambda: any(f"→ {leader} at" in message.body for message in messages), _PATIENCE_SECONDS
        )
        wait_for("every alert", lambda: "flink_ha_outbox_pending 0.0" in self.sidecar.get("/metrics")[1])
        assert self.sidecar.stop() == 0

    def _wait_for_an_alert(self) -> None:
        """Until one has arrived, and its sender has not heard so yet."""
        before = len(self.receiver.received)
        wait_for("an alert", lambda: len(self.receiver.received) > before, _PATIENCE_SECONDS)

    def _last_leader(self) -> str | None:
        """`host:port` of the last leader of the dispatcher, if it was seen."""
        seen = self.sidecar.transitions()
        last = [t for t in seen if t["component"] == "dispatcher" and t["after_session_id"]][-1]
        if UUID(last["after_session_id"]).int != self.flapping.term:
            return None
        return str(urlsplit(last["after_address"]).netloc.partition("@")[2])

    def close(self) -> None:
        """Nothing of it is left, however far it has come."""
        self.sidecar.end()
        self.flapping.stop()
        self.receiver.stop()


@pytest.fixture
def chains(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[list[Chain]]:
    made = [Chain(tmp_path, zookeeper, number) for number in range(CHAINS)]
    yield made
    for chain in made:
        chain.close()


def test_fifty_kills_lose_nothing_and_repeat_nothing(chains: list[Chain], tmp_path: Path) -> None:
    """The chain of records has no missing link, the audit holds each id once, and each alert arrived: of each sidecar that is killed."""
    with ThreadPoolExecutor(CHAINS) as together:
        list(together.map(Chain.run, chains))
    records = [chain.sidecar.records() for chain in chains]
    for chain, recorded in zip(chains, records, strict=True):
        _assert_no_link_is_missing([r for r in recorded if r["type"] == "transition"])
        _assert_each_alert_arrived([r for r in recorded if r["type"] == "notification"], chain.receiver)
    queued = sum(r["type"] == "notification" and r["outcome"] == "queued" for recorded in records for r in recorded)
    arrived = sum(len(chain.receiver.received) for chain in chains)
    assert queued < arrived, "no kill came between an alert's arrival and its answer"
    for chain in chains:
        shutil.copytree(chain.sidecar.spool, tmp_path / "spool", dirs_exist_ok=True)
    _assert_the_audit_holds_each_once([r for recorded in records for r in recorded], tmp_path)


def _assert_no_link_is_missing(transitions: list[dict[str, Any]]) -> None:
    """What each transition begins with is what the one before ended with, or what was last known when sight was lost."""
    by_component: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for transition in transitions:
        by_component[transition["component"]].append(transition)
    assert len(by_component) == len(ALL_FOUR)
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
    # Killed between the mark in the ledger and the record of it, the next process finds that it has sent this already.
    settled = [n["delivery_id"] for n in notifications if n["outcome"] in {"delivered", "already_told"}]
    # The end of an incident that waited while its sidecar was dead, and that a next failover has begun again by then.
    superseded = [n["delivery_id"] for n in notifications if (n["outcome"], n["reason"]) == ("superseded", "RESOLVED")]
    assert len(settled) > KILLS / 5
    assert sorted(settled + superseded) == sorted(n["delivery_id"] for n in queued)
    plain = [message.body for message in receiver.received if DUPLICATE_NOTE not in message.body]
    assert len(plain) == len(set(plain)), "an alert came twice without a label"
    distinct_bodies = {message.body.replace(f"\n\n{DUPLICATE_NOTE}", "") for message in receiver.received}
    assert len(distinct_bodies) == len(queued) - len(superseded)


def _assert_the_audit_holds_each_once(records: list[dict[str, Any]], folder: Path) -> None:
    """Of all sidecars, after one ingest."""
    folders = ("--spool", str(folder / "spool"), "--audit", str(folder / "audit"))
    taken = command("audit", "ingest", *folders)
    assert taken.returncode == 0, taken.stderr
    kept = pyarrow.dataset.dataset(folder / "audit" / "transitions").to_table(columns=["id"])["id"].to_pylist()
    assert sorted(kept) == sorted(r["id"] for r in records if r["type"] == "transition")
