"""One document that sidecars share by compare-and-swap: what is promised of it, in ZooKeeper and in Kubernetes alike."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sidecar.core.delivery.settle import HELD_PAUSE
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.ports import LONGEST_DOCUMENT, LedgerStore, StoredDocument
from sidecar.runtime.clock import Clock
from sidecar.sinks.notify.ledger_client import SharedLedger
from tests.integration.conftest import RelayTo
from tests.integration.ledgers import PATIENCE_SECONDS, SECONDS, InKubernetes, InZooKeeper, Place, out_of_reach, put
from tests.kit.relay import Wire
from tests.kit.serving import serving
from tests.kit.waiting import wait_for
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper
from tests.sinks.notify.test_ledger_client import FIRST

Open = Callable[..., LedgerStore]
LEASE_SECONDS = 5.0


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path) -> Iterator[ZooKeeper]:
    """A server to be hurt: each test leaves it serving."""
    with serving(ZooKeeper(tmp_path_factory.mktemp("ledgers"), flink_2_home, java)) as server:
        yield server


@pytest.fixture(params=["zookeeper", "kubernetes"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where one cluster's ledger is. Each test has another."""
    server = request.getfixturevalue(request.param)
    return InZooKeeper(server) if isinstance(server, ZooKeeper) else InKubernetes(server)


@pytest.fixture
def open_(place: Place) -> Iterator[Open]:
    """Opens the ledger, as many times as there are sidecars, and stops what was opened when the test is over."""
    opened = []

    def open_one(address: str = "", *, name: str = "ledger", seconds: float = PATIENCE_SECONDS) -> LedgerStore:
        opened.append(place.open(address, name=name, seconds=seconds))
        return opened[-1]

    yield open_one
    for store in opened:
        store.stop()


@pytest.fixture
def wire(place: Place, relay_to: RelayTo) -> Wire:
    """A connection to the server that can be hurt."""
    return relay_to(place.address)


def test_it_is_empty_at_first_and_then_what_was_written(place: Place) -> None:
    """Everybody reads what was written last, and what a write returns is what a read would, for the next write too."""
    ours, theirs = place.settled(), place.settled()
    assert ours.read() == StoredDocument(b"", None)
    first = ours.write(b'{"claims": []}', ours.read())
    assert first is not None
    assert (first.content, theirs.read()) == (b'{"claims": []}', first)
    second = ours.write('{"by": "jm-1 \N{SNOWMAN}"}\n'.encode(), first)
    assert second is not None
    assert theirs.read() == second
    assert theirs.write(b"", second) == ours.read()
    for store in (ours, theirs):
        store.stop()


def test_who_loses_a_race_learns_it_and_changes_nothing(open_: Open) -> None:
    """Both to make it and to change it: the first wins, the second gets None and reads what the first wrote."""
    ours, theirs = open_(), open_()
    nothing = theirs.read()
    first = ours.write(b"ours", nothing)
    assert theirs.write(b"theirs", nothing) is None
    assert first is not None
    assert ours.read() == theirs.read() == first
    second = theirs.write(b"theirs", first)
    assert ours.write(b"ours again", first) is None
    assert ours.read() == theirs.read() == second


def test_the_documents_of_a_cluster_do_not_disturb_each_other(open_: Open) -> None:
    """Whichever is written first; in Kubernetes they are keys of one ConfigMap, and a write of one may have to be repeated."""
    ledger, handover = open_(), open_(name="handover")
    put(handover, b"handover")
    assert ledger.read().content == b""
    put(ledger, b"ledger")
    put(handover, b"handover again")
    assert (ledger.read().content, handover.read().content) == (b"ledger", b"handover again")


def test_what_was_deleted_meanwhile_is_a_lost_race(place: Place, open_: Open) -> None:
    """None, nothing is written, and the next read says that there is nothing."""
    store = open_()
    before = put(store, b"before")
    place.delete()
    assert store.write(b"after", before) is None
    assert store.read() == StoredDocument()
    assert put(store, b"anew") == store.read()


def test_no_increment_is_lost(open_: Open) -> None:
    """Three writers who each count a hundred times, all at once, end at 300."""
    stores = [open_() for _ in range(3)]
    begin = threading.Barrier(len(stores))

    def count(store: LedgerStore) -> None:
        begin.wait(10)
        for _ in range(100):
            counted = None
            while counted is None:
                document = store.read()
                counted = store.write(b"%d" % (int(document.content or 0) + 1), document)

    with ThreadPoolExecutor(len(stores)) as pool:
        for counted in [pool.submit(count, store) for store in stores]:
            counted.result(60)
    assert stores[0].read().content == b"300"


def test_it_outlives_a_restart_of_its_server(place: Place, open_: Open) -> None:
    """What stands there still does, and the next call, a read or a write, just works."""
    reader, writer = open_(), open_()
    before = put(writer, b"before")
    assert reader.read() == before
    place.restart()
    after = writer.write(b"after", before)
    assert after is not None
    assert reader.read() == after


def test_a_connection_that_breaks_between_calls_is_made_anew(open_: Open, wire: Wire) -> None:
    """Nobody is notified: the next call is answered."""
    store = open_(wire.address)
    document = put(store, b"0")
    for count in (b"1", b"2", b"3"):
        wire.cut()
        eventually_lost(wire)
        written = store.write(count, document)
        assert written is not None
        document = written
    assert store.read() == document


def test_an_idle_ledger_holds_no_connection(open_: Open, wire: Wire) -> None:
    """After a rest and after a stop there is none; the next use makes one. Both may be done twice, and first of all."""
    store = open_(wire.address)
    store.rest()
    assert connections(wire) == 0
    for content, end in ((b"1", store.rest), (b"2", store.stop)):
        assert put(store, content) == store.read()
        assert connections(wire) == 1
        end()
        end()
        eventually_lost(wire)


def test_a_server_that_is_not_there_is_said_in_time(open_: Open) -> None:
    """Read and write end with one line that names what is out of reach and why."""
    address = f"127.0.0.1:{free_port()}"
    store = open_(address, seconds=SECONDS)
    for act in (store.read, lambda: store.write(b"1", StoredDocument())):
        line = out_of_reach(act)
        assert address in line
        assert "Connection refused" in line


def test_a_server_that_hangs_is_said_in_time_and_found_again(open_: Open, wire: Wire) -> None:
    """Whether it falls silent under a connection or takes one and says nothing; when it speaks again, the next call is answered."""
    store = open_(wire.address, seconds=SECONDS)
    document = put(store, b"1")
    wire.fall_silent()
    out_of_reach(store.read)
    out_of_reach(lambda: store.write(b"2", document))
    wire.speak_again()
    assert store.read() == document
    assert put(store, b"3") == store.read()


def test_too_large_a_document_is_refused_before_it_is_sent(open_: Open) -> None:
    """The largest is written and read; one byte more is an error, and what stood there still does."""
    store = open_()
    document = put(store, b"x" * LONGEST_DOCUMENT)
    assert store.read() == document
    line = out_of_reach(lambda: store.write(b"x" * (LONGEST_DOCUMENT + 1), document))
    assert f"{LONGEST_DOCUMENT + 1} bytes" in line
    assert store.read() == document


def test_what_somebody_made_too_large_is_said(place: Place, open_: Open) -> None:
    """It is no ledger, and the line says what to do."""
    place.put(b"x" * (LONGEST_DOCUMENT + 1))
    assert "too many for a ledger: delete it" in out_of_reach(open_().read)


@pytest.mark.parametrize(
    ("cluster", "loaded"),
    [
        ("KubernetesSettings('demo', 'default')", ["urllib3"]),
        ("ZooKeeperSettings('127.0.0.1:1', '/flink/demo', 'demo', 60.0, 15.0, False)", ["kazoo"]),
    ],
)
def test_only_the_library_of_the_store_is_loaded(cluster: str, loaded: list[str]) -> None:
    """Each is a third of the memory; and neither connects before it is used."""
    code = (
        "import sys\nfrom sidecar.drivers import ledger_of\nfrom sidecar.settings import KubernetesSettings, ZooKeeperSettings\n"
        f"ledger_of({cluster}).stop()\nprint([name for name in ('kazoo', 'urllib3', 'kubernetes') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-I", "-c", code], text=True, timeout=60) == f"{loaded}\n"


def connections(wire: Wire) -> int:
    """How many connections to it are open, as the system says."""
    to = f":{int(wire.address.rpartition(':')[2]):04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(fields[2].endswith(to) and fields[3] == "01" for fields in map(str.split, lines))


def eventually_lost(wire: Wire) -> None:
    """Wait until no connection to it is open."""
    wait_for("the connections' end", lambda: not connections(wire))


def test_a_document_that_no_decoder_survives_is_replaced(open_: Open) -> None:
    """Anybody may write it where the store is open: it counts as unreadable, the first claim replaces it, and others find that."""
    put(open_(), b'{"began": 1, "x": ' + b"[" * 1200 + b"]" * 1200 + b"}")
    ours, theirs = (SharedLedger(open_(), name, Clock(), alone_if_refused=True) for name in ("ours", "theirs"))
    ours.begin()
    permit = ours.claim(FIRST)
    assert permit.outcome is None
    ours.settle(FIRST, permit.claim, DeliveryOutcome.DELIVERED)
    assert theirs.claim(FIRST).outcome is DeliveryOutcome.ALREADY_TOLD


def test_where_no_thread_is_to_be_had_the_ledger_is_out_of_reach(open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit of process ids; when there are threads again, it is in reach again."""
    ledger = SharedLedger(open_(), "ours", Clock(), alone_if_refused=True)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        assert ledger.claim(FIRST).outcome is DeliveryOutcome.NO_LEDGER
    assert ledger.claim(FIRST).outcome is None


def test_a_claim_is_renewed_while_its_holder_lives_and_then_taken_over(open_: Open) -> None:
    """Of a sidecar that sends slowly, and of one that has died: by another one that asks as often as a sidecar does."""
    holder, other = (
        SharedLedger(open_(), name, Clock(), alone_if_refused=True, lease=round(LEASE_SECONDS * SECOND))
        for name in ("holder", "other")
    )
    with holder.renewing(FIRST, holder.claim(FIRST)):
        deadline = time.monotonic() + 2 * LEASE_SECONDS
        while time.monotonic() < deadline:
            assert other.claim(FIRST).outcome is DeliveryOutcome.HELD
            time.sleep(HELD_PAUSE / SECOND)
    permit = wait_for("the claim", lambda: found if (found := other.claim(FIRST)).outcome is None else None)
    assert permit.possible_duplicate
    other.settle(FIRST, permit.claim, DeliveryOutcome.DELIVERED)
    assert holder.claim(FIRST).outcome is DeliveryOutcome.ALREADY_TOLD
