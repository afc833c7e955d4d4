"""Several sidecars that watch one cluster, and whom they tell: the scene of "one voice", and its judge.

Flink's znodes are written by us, as its JobManagers write them: two hundred failovers of a real Flink take hours. All else is real.
"""

import re
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import loads
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from sidecar.core.messages import DUPLICATE_NOTE
from tests.e2e.sidecar import Sidecar
from tests.shell.scenes import leader_bytes

LEDGER: Final = "/flink-ha-sidecar/flink/default/ledger"

_COMPONENTS: Final = ("resource_manager", "dispatcher", "rest_server", "job-" + "ab" * 16)
_PATHS: Final = tuple(f"/flink/default/leader/{name}/connection_info" for name in _COMPONENTS)
_HANG_SECONDS: Final = 25.0  # longer than an attempt may take
_CHANGE: Final = re.compile(r"^(\w+).*(→ jm-\d{5}):", re.MULTILINE)
_REASON: Final = re.compile(r"^alert: .* \((\w+)\)$", re.MULTILINE)
_OBSERVER: Final = re.compile(r"^observer: (\S+)$", re.MULTILINE)
_FLAPPING: Final = re.compile(r"failovers within")


class Leaders:
    """The leaders of a cluster, each in a process of its own: `jm-00001` is the first. `since`: when each began to lead."""

    def __init__(self, address: str) -> None:
        self.client = KazooClient(address, timeout=60)
        self.since: dict[str, float] = {}
        self._term = 0

    @property
    def present(self) -> str:
        return f"jm-{self._term:05}"

    def start(self) -> None:
        self.client.start()
        self.client.ensure_path("/flink/default/leader/latch")
        self.client.ensure_path("/flink/default/execution-plans/" + "ab" * 16)
        self.fail_over()

    def lead(self) -> bool:
        """Whether the present leader's nodes are there."""
        return all(self.client.retry(self.client.exists, path) for path in _PATHS)

    def fail_over(self) -> None:
        """The leader is gone; a moment later the next one has written itself everywhere."""
        for path in _PATHS if self._term else ():
            with suppress(NoNodeError):
                self.client.retry(self.client.delete, path)
        time.sleep(0.1)  # nobody leads
        self._term += 1
        self.since[self.present] = time.time()
        content = leader_bytes(f"pekko.tcp://flink@{self.present}:6123/x", UUID(int=self._term).int)
        for path in _PATHS:
            self.client.retry(self.client.create, path, content, ephemeral=True, makepath=True)

    def stop(self) -> None:
        self.client.stop()
        self.client.close()


class Mood(StrEnum):
    """How a receiver takes a message."""

    WELL = "200"
    BROKEN = "500"
    BROKEN_BUT_KEPT = "500, kept"
    TOO_MANY = "429"
    HANGS = "hangs, kept"
    RESETS = "reset, kept"


class Arrival(NamedTuple):
    """A message that was kept. `at` is in seconds since the epoch."""

    at: float
    body: str


class Receiver:
    """A webhook with moods: each with its weight. They may be changed while it runs."""

    def __init__(self, moments: Random, moods: Mapping[Mood, float]) -> None:
        self.moods = moods
        self.arrivals: list[Arrival] = []
        self.answered: Counter[Mood] = Counter()
        self.stopping = threading.Event()
        self._moments = moments
        self._lock = threading.Lock()
        self._server = _Server(self)

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self._server.server_port}/"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="moody", daemon=True).start()

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: str) -> Mood:
        """Decide what becomes of a message, and keep it, or not."""
        with self._lock:
            mood = self._moments.choices([*self.moods], [*self.moods.values()])[0]
            self.answered[mood] += 1
            if mood not in {Mood.BROKEN, Mood.TOO_MANY}:
                self.arrivals.append(Arrival(time.time(), body))
            return mood


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.receiver = receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed is none of our errors."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0

    def do_POST(self) -> None:
        """Called for each message."""
        receiver = self.server.receiver
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        mood = receiver.take(loads(raw)["message"])
        if mood is Mood.HANGS:
            receiver.stopping.wait(_HANG_SECONDS)
        if mood in {Mood.HANGS, Mood.RESETS}:
            self.close_connection = True
            with suppress(OSError):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            return
        self.send_response(int(mood[:3]))
        if mood is Mood.TOO_MANY:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Says nothing: what arrived is in `arrivals`."""


class Voices:
    """Sidecars a, b and c with one configuration: every receiver is a destination of its own."""

    def __init__(self, folder: Path, address: str, receivers: Sequence[Receiver]) -> None:
        urls = [receiver.url for receiver in receivers]
        cluster = f"zookeeper: {{quorum: '{address}'}}"
        self.sidecars = [
            Sidecar(folder / name, cluster, urls, observer=name, group_wait="1s", group_interval="2s") for name in "abc"
        ]

    def start(self) -> None:
        for sidecar in self.sidecars:
            sidecar.start()
        for sidecar in self.sidecars:
            sidecar.wait_ready()

    def told_all(self) -> bool:
        """Whether nothing waits to be sent anywhere."""
        return all("flink_ha_outbox_pending 0.0" in sidecar.get("/metrics")[1] for sidecar in self.sidecars)

    def kill(self) -> None:
        """End those that run, also the frozen ones."""
        for sidecar in self.sidecars:
            if sidecar.process and sidecar.process.poll() is None:
                sidecar.kill()


def leads(sidecar: Sidecar, leader: str) -> bool:
    """Whether this sidecar sees that leader everywhere, and has it on disk."""
    status, answer = sidecar.get("/api/v1/leaders")
    return status == 200 and answer.count(f"@{leader}:") == len(_COMPONENTS)


def freeze(sidecar: Sidecar) -> None:
    """SIGSTOP; the child that sends a message goes on."""
    assert sidecar.process
    sidecar.process.send_signal(signal.SIGSTOP)


def thaw(sidecar: Sidecar) -> None:
    """SIGCONT."""
    assert sidecar.process
    sidecar.process.send_signal(signal.SIGCONT)


class Telling(NamedTuple):
    """One message, as far as the judge reads it."""

    at: float
    subjects: frozenset[str]
    """The changes of leaders that it tells of, `dispatcher → jm-00002`, or what else."""
    reason: str
    observer: str
    labelled: bool
    text: str


class Verdict(NamedTuple):
    """What one destination was told."""

    tellings: list[Telling]
    lost: list[str]
    """Leaders that nobody told of."""
    delays: list[float]
    """Of each leader that was told of: seconds until it was, in order of length."""
    labelled: list[Telling]
    """Duplicates: of all that they tell somebody had told before, for the same reason. Those that say that they may be."""
    unlabelled: list[Telling]
    """And those that do not."""
    overlapping: int
    """Messages that tell something new, and repeat something."""


def read(arrival: Arrival) -> Telling:
    """What a message tells. It is read like its readers do: from the text."""
    reason, observer = _REASON.search(arrival.body), _OBSERVER.search(arrival.body)
    assert reason, arrival.body
    assert observer, arrival.body
    changes = frozenset(" ".join(change) for change in _CHANGE.findall(arrival.body))
    other = frozenset({"flapping"} if _FLAPPING.search(arrival.body) else ())
    labelled = DUPLICATE_NOTE in arrival.body
    return Telling(arrival.at, changes or other, reason[1], observer[1], labelled, arrival.body)


def judge(arrivals: Sequence[Arrival], since: Mapping[str, float]) -> Verdict:
    """`since`: when each leader began to lead. Nothing that the sidecars say of themselves is asked, but the name in a message."""
    tellings = [read(arrival) for arrival in arrivals]
    first: dict[str, float] = {}
    said: set[tuple[str, str]] = set()
    duplicates, overlapping = [], 0
    for telling in tellings:
        says = {(subject, telling.reason) for subject in telling.subjects}
        if says <= said:
            duplicates.append(telling)
        elif says & said:
            overlapping += 1
        said |= says
        for subject in telling.subjects:
            first.setdefault(subject.rpartition(" ")[2], telling.at)
    return Verdict(
        tellings,
        [leader for leader in since if leader not in first],
        sorted(first[leader] - at for leader, at in since.items() if leader in first),
        [telling for telling in duplicates if telling.labelled],
        [telling for telling in duplicates if not telling.labelled],
        overlapping,
    )


class Books(NamedTuple):
    """What a sidecar says that became of what it had to tell."""

    queued: int
    delivered: int
    already_told: int
    gave_up: int
    fail_opens: int
    open: list[str]
    """Deliveries of which nothing is said, or more than one thing."""


def books(sidecar: Sidecar) -> Books:
    """From its records."""
    found: dict[str, list[str]] = {}
    outcomes: Counter[str] = Counter()
    for record in sidecar.records():
        if record["type"] == "notification" and record["delivery_id"]:
            outcomes[record["outcome"]] += 1
            ends = found.setdefault(record["delivery_id"], [])
            if record["outcome"] in {"delivered", "already_told", "gave_up"}:
                ends.append(record["outcome"])
    return Books(
        outcomes["queued"],
        outcomes["delivered"],
        outcomes["already_told"],
        outcomes["gave_up"],
        outcomes["no_ledger"],
        [delivery for delivery, ends in found.items() if len(ends) != 1],
    )
