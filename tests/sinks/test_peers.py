"""Observers that ask each other over real HTTP, with a ledger in memory."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from sidecar.core.agreement import Opinion
from sidecar.core.delivery import ledger_document
from sidecar.core.delivery.ledger_document import MOST_OBSERVERS, Presence
from sidecar.core.flink.leadership import Component
from sidecar.core.observations import ConnectionState, DeliveryOutcome, PeersAsked
from sidecar.core.policy.policy import ALL_FOUND, Rule, Trigger
from sidecar.core.views.snapshot import Snapshot
from sidecar.ports import LedgerError
from sidecar.runtime.clock import Clock
from sidecar.sinks.notify.ledger_client import SharedLedger
from sidecar.sinks.peers import PeerExchange
from tests.core.test_agreement import OWN
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import BY_ALERT, NO_LEADER, Sidecar, watching
from tests.kit.memory_ledger import Memory, Shared
from tests.kit.strange_servers import answering, silent
from tests.kit.waiting import wait_for
from tests.shell.reading import show
from tests.shell.site import Site
from tests.sinks.notify.test_ledger_client import FIRST

BLIND = Rule("Blind", Trigger.BLIND, hold_for=20_000_000)
POLICY = replace(BY_ALERT, rules=(BLIND, NO_LEADER))
THEIRS = replace(POLICY, observer="other")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Site]:
    """The HTTP server of another observer."""
    site = Site(tmp_path)
    yield site
    site.stop()


class Asking:
    """An observer that asks, and whoever the ledger names."""

    def __init__(self, sidecar: Sidecar, ledger: str = CLUSTER) -> None:
        self.sidecar = sidecar
        self.memory = Memory(Shared())
        self.asked: list[PeersAsked] = []
        self.ledger = SharedLedger(self.memory, sidecar.policy.observer, Clock(), alone_if_refused=False)
        self.peers = PeerExchange({ledger: self.ledger}, "http://10.0.0.1:9250", self.snapshot, Clock())

    def snapshot(self) -> Snapshot:
        return Snapshot(Clock()(), self.sidecar.state, policy=self.sidecar.policy)

    def names(self, observer: str, address: str) -> None:
        """Another observer announces itself, and has sent a notification that this one would have sent, too."""
        another = self.is_named(observer, address)
        delivery = replace(FIRST, id=observer, fingerprint=observer)
        another.settle(delivery, another.claim(delivery).claim, DeliveryOutcome.DELIVERED)
        assert self.ledger.claim(delivery).outcome is DeliveryOutcome.ALREADY_TOLD

    def is_named(self, observer: str, address: str) -> SharedLedger:
        """Another observer announces itself, and no more."""
        another = SharedLedger(Memory(self.memory.shared), observer, Clock(), alone_if_refused=False)
        another.announce(Presence(Clock()().wall, address))
        return another

    def start(self) -> None:
        self.peers.start(self.asked.append)
        wait_for("the ledger to be read", lambda: self.published)

    @property
    def published(self) -> Presence | None:
        """What it has published."""
        return ledger_document.read(self.memory.shared.document.content).observers.get(self.sidecar.policy.observer)

    def cut_off(self) -> None:
        """From the store, and so from the ledger."""
        self.memory.fault = LedgerError("no answer")
        self.sidecar.is_cut_off(ConnectionState.LOST).waits(1)

    def answer(self) -> PeersAsked:
        wait_for("the others to be asked", lambda: self.asked)
        return self.asked[-1]


@pytest.fixture
def asking() -> Iterator[Callable[..., Asking]]:
    """Makes observers that end with the test."""
    made: list[Asking] = []

    def make(ledger: str = CLUSTER) -> Asking:
        made.append(Asking(watching(policy=POLICY)[1], ledger))
        return made[-1]

    yield make
    for each in made:
        each.peers.stop()


def shown(site: Site, sidecar: Sidecar) -> None:
    show(site, sidecar)
    sidecar.policy = THEIRS
    show(site, sidecar)


@pytest.mark.parametrize("ledger", [CLUSTER, ALL_FOUND])
def test_a_blind_observer_learns_what_the_other_one_sees(
    asking: Callable[..., Asking], other: Site, ledger: str
) -> None:
    """It knows its address from before it was cut off."""
    shown(other, watching(policy=POLICY)[1])
    one = asking(ledger)
    one.names("other", other.url(""))
    one.start()
    one.cut_off()
    asked = one.answer()
    assert (asked.cluster_id, asked.known) == (CLUSTER, 1)
    assert asked.opinions == (Opinion("other", sees=True),)


def test_what_the_other_one_sees_vacant_is_part_of_its_answer(asking: Callable[..., Asking], other: Site) -> None:
    """Its components, and whether a job is."""
    flink, theirs = watching(policy=POLICY)
    flink.vacate()
    shown(other, theirs.sees_changes())
    one = asking()
    one.names("other", other.url(""))
    one.start()
    one.cut_off()
    assert set(one.answer().opinions[0].vacant) == {*OWN, Component.JOB}


def test_an_answer_of_another_observer_is_none(asking: Callable[..., Asking], other: Site) -> None:
    """An address is taken by another pod: it speaks for itself alone."""
    show(other, watching(policy=POLICY)[1])
    one = asking()
    one.names("other", other.url(""))
    one.start()
    one.cut_off()
    assert one.answer().opinions == ()


def test_a_snapshot_that_is_old_sees_nothing(asking: Callable[..., Asking], other: Site) -> None:
    """Its owner is stuck: it is as blind as one without a connection."""
    theirs = watching(policy=POLICY)[1]
    shown(other, theirs)
    other.now = replace(other.now, steady=other.now.steady + 6_000_000)
    one = asking()
    one.names("other", other.url(""))
    one.start()
    one.cut_off()
    assert one.answer().opinions == (Opinion("other", sees=False),)


@pytest.mark.parametrize(
    "address",
    ["", "http://127.0.0.1:1", "http://169.254.169.254:80", "ftp://127.0.0.1:21", "http://127.0.0.1:99999", "\x1b[2J"],
)
def test_whom_nobody_can_ask_has_no_opinion(asking: Callable[..., Asking], address: str) -> None:
    """It is counted: the message says that it does not answer."""
    one = asking()
    one.names("other", address)
    one.start()
    one.cut_off()
    asked = one.answer()
    assert (asked.known, asked.opinions) == (1, ())


def says(content: bytes) -> Callable[[socket.socket], None]:
    """A server that answers every request with this."""

    def behaviour(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))

    return behaviour


LINE = {"cluster_id": CLUSTER, "observer": "other", "sees": True}


@pytest.mark.parametrize(
    ("behaviour", "count"),
    [
        (silent, 0),
        (says(b"[" * 100_000), 0),
        (says(b"\xff"), 0),
        (says(json.encode([{**LINE, "sees": "yes"}])), 0),
        (says(json.encode([{**LINE, "vacant": ["\x1b[2J"]}])), 0),
        (says(json.encode([{**LINE, "cluster_id": "another"}])), 0),
        (says(json.encode([LINE])), 1),
        (says(json.encode([LINE] * 4_000)), 1),
        (says(json.encode([LINE] * 5_001)), 0),
        (says(b"[" + b" " * (1 << 20) + json.encode(LINE) + b"]"), 0),
    ],
)
def test_what_an_observer_cannot_say_is_no_opinion(
    asking: Callable[..., Asking], behaviour: Callable[[socket.socket], None], count: int
) -> None:
    """And what it says many times is one."""
    one = asking()
    with answering(behaviour) as address:
        one.names("other", f"http://{address}")
        one.start()
        one.cut_off()
        assert len(one.answer().opinions) == count


def test_who_has_only_written_its_name_into_the_ledger_has_no_vote_and_is_not_asked(
    asking: Callable[..., Asking],
) -> None:
    """Everyone who can write the ledger can invent observers. One that has sent from another address is another one."""
    one, asked = asking(), list[bytes]()
    with answering(lambda connection: asked.append(connection.recv(4096))) as address:
        for number in range(8):
            one.is_named(f"invented-{number}", f"http://{address}")
        one.names("moved", "http://10.0.0.2:9250")
        one.is_named("moved", f"http://{address}")
        one.start()
        one.cut_off()
        answer = one.answer()
        assert (answer.known, answer.opinions, asked) == (0, (), [])


def test_a_long_list_of_vacancies_is_kept_as_what_it_says(asking: Callable[..., Asking]) -> None:
    """Each kind of component once: what an observer answers does not grow what is kept."""
    one = asking()
    with answering(says(json.encode([{**LINE, "vacant": ["job", "dispatcher"] * 40_000}]))) as address:
        one.names("other", f"http://{address}")
        one.start()
        one.cut_off()
        assert one.answer().opinions == (Opinion("other", sees=True, vacant=(Component.DISPATCHER, Component.JOB)),)


def test_observers_that_do_not_answer_hold_up_no_other_ledger(asking: Callable[..., Asking]) -> None:
    """All of one ledger have two seconds together."""
    one = asking()
    with answering(silent) as address:
        for number in range(MOST_OBSERVERS - 1):
            one.names(f"slow-{number}", f"http://{address}")
        one.start()
        one.cut_off()
        began = time.monotonic()
        assert one.answer().known == MOST_OBSERVERS - 1
        assert time.monotonic() - began < MOST_OBSERVERS / 2


def test_nobody_is_asked_while_all_is_well_or_nobody_is_there(asking: Callable[..., Asking]) -> None:
    """An idle sidecar asks nothing, and one that is alone never does."""
    one, alone = asking(), asking()
    one.names("other", "http://127.0.0.1:1")
    one.start()
    alone.start()
    alone.cut_off()
    reads = one.memory.reads
    wait_for(
        "it to publish once more", lambda: one.memory.reads > reads
    )  # after several times that it could have asked
    assert (one.asked, alone.asked) == ([], [])


def test_it_publishes_when_it_last_saw_the_store_and_a_leader(asking: Callable[..., Asking]) -> None:
    """And its address. While it is cut off it publishes nothing."""
    one = asking()
    before = Clock()().wall
    one.start()
    published = one.published
    assert published
    assert published.address == "http://10.0.0.1:9250"
    assert before <= published.leader_seen_at <= published.store_seen_at <= published.at
