"""Several sidecars that watch one cluster, and whom they notify: the scene of "one voice", and its judge.

Flink's znodes are written by the fake Flink (`tests.kit.leaders`): two hundred failovers of a real one take hours. All else is real.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.core.cluster.record_lines import DUPLICATE_NOTE
from tests.kit.cluster import ALL_FOUR
from tests.kit.receivers import Arrival, Receiver
from tests.kit.sidecar_process import Sidecar

LEDGER: Final = "/flink-ha-sidecar/flink/default/ledger"
_CHANGE: Final = re.compile(r"^(\w+).*(→ jm-\d{5}):", re.MULTILINE)
_REASON: Final = re.compile(r"^alert: .* \((\w+)\)$", re.MULTILINE)
_OBSERVER: Final = re.compile(r"^observer: (\S+)$", re.MULTILINE)
_FLAPPING: Final = re.compile(r"failovers within")


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

    def has_sent_all(self) -> bool:
        """Whether nothing waits to be sent anywhere."""
        return all("flink_ha_outbox_pending 0.0" in sidecar.get("/metrics")[1] for sidecar in self.sidecars)

    def kill(self) -> None:
        """End those that run, also the frozen ones."""
        for sidecar in self.sidecars:
            sidecar.end()


def leads(sidecar: Sidecar, leader: str) -> bool:
    """Whether this sidecar sees that leader everywhere, and has it on disk."""
    return sum(f"{leader}:" in address for address in sidecar.leader_addresses()) == len(ALL_FOUR)


class Message(NamedTuple):
    """One message, as far as the judge reads it."""

    at: float
    subjects: frozenset[str]
    """The changes of leaders in it, `dispatcher → jm-00002`, or what else."""
    reason: str
    observer: str
    labelled: bool
    text: str


class Verdict(NamedTuple):
    """What one destination was notified of."""

    messages: list[Message]
    lost: list[str]
    """Leaders that nobody reported."""
    unlabelled: list[Message]
    """Duplicates, messages that somebody had sent before for the same reason, that do not say that they may be."""


def read(arrival: Arrival) -> Message:
    """What a message says. It is read like its readers do: from the text."""
    reason, observer = _REASON.search(arrival.body), _OBSERVER.search(arrival.body)
    assert reason, arrival.body
    assert observer, arrival.body
    changes = frozenset(" ".join(change) for change in _CHANGE.findall(arrival.body))
    other = frozenset({"flapping"} if _FLAPPING.search(arrival.body) else ())
    labelled = DUPLICATE_NOTE in arrival.body
    return Message(arrival.at, changes or other, reason[1], observer[1], labelled, arrival.body)


def judge(arrivals: Sequence[Arrival], leaders: Iterable[str]) -> Verdict:
    """`leaders`: all that led. Nothing that the sidecars say of themselves is asked, but the name in a message."""
    messages = [read(arrival) for arrival in arrivals]
    said: set[tuple[str, str]] = set()
    unlabelled = []
    for message in messages:
        says = {(subject, message.reason) for subject in message.subjects}
        if says <= said and not message.labelled:
            unlabelled.append(message)
        said |= says
    reported = {subject.rpartition(" ")[2] for message in messages for subject in message.subjects}
    return Verdict(messages, [leader for leader in leaders if leader not in reported], unlabelled)


class Books(NamedTuple):
    """What a sidecar says that became of its notifications."""

    queued: int
    delivered: int
    already_told: int
    superseded: int
    """Scheduled closes of an incident which went on: where two failovers are close."""
    gave_up: int
    fail_opens: int
    open: list[str]
    """Deliveries of which nothing is said, or more than one thing."""


def books(sidecar: Sidecar) -> Books:
    """From its records."""
    ends_by_delivery: dict[str, list[str]] = {}
    outcomes: Counter[str] = Counter()
    for record in sidecar.records():
        if record["type"] == "notification" and record["delivery_id"]:
            outcomes[record["outcome"]] += 1
            ends = ends_by_delivery.setdefault(record["delivery_id"], [])
            if record["outcome"] in {"delivered", "already_told", "gave_up", "superseded"}:
                ends.append(record["outcome"])
    return Books(
        outcomes["queued"],
        outcomes["delivered"],
        outcomes["already_told"],
        outcomes["superseded"],
        outcomes["gave_up"],
        outcomes["no_ledger"],
        [delivery for delivery, ends in ends_by_delivery.items() if len(ends) != 1],
    )
