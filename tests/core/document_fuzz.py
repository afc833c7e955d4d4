"""`python -m tests.core.document_fuzz --documents 100000`: random and mutated handovers, ledgers and silences, each adopted by a sidecar.

After each one time passes, then all leaders vanish: no step may raise or leave anything out, no tick may be slow, what is journaled is read
again, and people are notified of the missing leaders. The same seed and number give the same document: `--seed S --only N`.
"""

import argparse
import json as plain
import sys
import time
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, Final

from msgspec import json
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.alerting import claims, ledger_document, silence_document
from sidecar.core.alerting.alerting_step import ReadSilences, Send
from sidecar.core.alerting.claims import ClaimStanding
from sidecar.core.alerting.ledger_document import LEASE_UNRENEWED, Claim, ForeignLedgerError
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.alerting.silence_document import SilencesError
from sidecar.core.handover.writer import MOST_BYTES
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import SECOND
from sidecar.core.observations import (
    ConnectionState,
    DeliveryOutcome,
    DeliverySettled,
    HandoverRead,
    Observation,
    SilencesRead,
    SnapshotCompleted,
    Started,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy.policy import Objective, Policy, Rule, Severity, Source
from sidecar.core.policy.triggers import Trigger
from sidecar.core.quarantine import Quarantined
from sidecar.core.records import Notification
from sidecar.core.state import Append, State
from sidecar.core.step import step
from tests.core.handover_fields import document
from tests.kit.observed_failovers import CLUSTER, PATHS, POLICY, at, failover, first_sight, gone, held

RULES: Final = tuple(
    Rule(
        f"Rule{trigger.value}",
        trigger,
        Severity.CRITICAL if trigger is Trigger.VACANT else Severity.WARNING,
        hold_for=30 * SECOND if trigger in {Trigger.VACANT, Trigger.BLIND, Trigger.NO_STANDBY} else 0,
        count=3,
        within=3600 * SECOND,
    )
    for trigger in Trigger
)
VACANT: Final = "Rulevacant"
LONGEST_SILENCE: Final = 3600 * SECOND
PLAIN: Final = replace(
    POLICY, rules=RULES, silence_documents=frozenset({CLUSTER}), longest_silence=LONGEST_SILENCE, observer="observer-2"
)
PLANS: Final = replace(PLAIN, plans=frozenset({CLUSTER}))
FULL: Final = replace(
    PLANS,
    evidence=frozenset({Source.FLINK_REST}),
    deaths=frozenset({CLUSTER}),
    pod_names=frozenset({CLUSTER}),
    events=frozenset({CLUSTER}),
    own_hosts=frozenset({"10.0.0.1"}),
    objectives={CLUSTER: Objective(99.9, 30 * 86_400 * SECOND)},
)
"""Whatever a handover may say is of use."""
TICKS: Final = (0.5, 1, 6, 11, 31, 36, 61, 120, 310, 610)
"""Seconds after each of: the document was read, the leaders were seen, and they vanished."""
LATER: Final = (900, 1300, 4000, 7500, 15_000)
"""By then any plan, any silence and any drill has expired."""
MOST_SECONDS: Final = 2.0
"""Of CPU that one document may take: a tick of 20 s is what it must not come to."""
MOST_TEXT: Final = 6_000
"""Characters of a message."""


class FuzzError(Exception):
    """What a document did that none may do."""


# -- a sidecar ---------------------------------------------------------------------------------------------------------


class Reader:
    """The core of a sidecar that delivers what it sends."""

    def __init__(self, policy: Policy, silences: bytes = b"") -> None:
        self.policy = policy
        self.state = State()
        self.sent: list[Delivery] = []
        self.suppressed = 0
        self._silences = silences

    def takes(self, *observations: Observation) -> "Reader":
        for observation in observations:
            self.state, effects = step(self.policy, self.state, observation)
            for effect in effects:
                match effect:
                    case Quarantined(what, error):
                        raise FuzzError(f"{what} was left out: {error!r}") from error
                    case Append(record):
                        json.encode(record)
                        is_silenced = isinstance(record, Notification) and record.reason == "SUPPRESSED_BY_SILENCE"
                        self.suppressed += is_silenced
                    case Send(delivery):
                        lines = (
                            delivery.title,
                            *delivery.body.split("\n"),
                            *(text for fact in delivery.facts for text in fact),
                        )
                        if not all(map(str.isprintable, lines)) or sum(map(len, lines)) > MOST_TEXT:
                            raise FuzzError("a message has control characters, or no end")
                        self.sent.append(delivery)
                        self.takes(DeliverySettled(observation.at, delivery.id, DeliveryOutcome.DELIVERED))
                    case ReadSilences(document):
                        self.takes(SilencesRead(observation.at, document, self._silences))
        return self

    def waits(self, since: float, seconds: Sequence[float] = TICKS) -> "Reader":
        return self.takes(*(Ticked(at(since + second)) for second in seconds))

    def restarts(self, second: float) -> "Reader":
        """On the same disk: each row can be read again."""
        self.state, problems = assemble(changes(State(), self.state))
        if problems:
            raise FuzzError(f"a row of the journal cannot be read: {problems[0]}")
        return self.takes(Started(at(second)))

    def sees(self, second: float, term: int) -> "Reader":
        """All is read; these leaders lead."""
        connected = ViewObserved(at(second), CLUSTER, ConnectionState.CONNECTED)
        leaders = [replace(held(0, path, term), at=at(second)) for path in PATHS]
        return self.takes(connected, *leaders, SnapshotCompleted(at(second), CLUSTER))

    def vanish(self, second: float) -> "Reader":
        """All leaders vanish. People are notified, or it is recorded that a silence hides it, until that has expired."""
        before, hidden = len(self.sent), self.suppressed
        self.takes(*(gone(second, path) for path in PATHS)).waits(second)
        if not self._is_notified(before) and self.suppressed == hidden:
            self.waits(second, LATER[:2])
        if not self._is_notified(before):
            if self.suppressed == hidden:
                raise FuzzError("nobody was notified that the leaders vanished")
            self.waits(second, LATER)
        if not self._is_notified(before):
            raise FuzzError("a silence has no end")
        return self

    def _is_notified(self, before: int) -> bool:
        return any(VACANT in delivery.alert for delivery in self.sent[before:])


# -- documents to begin with -------------------------------------------------------------------------------------------


def _left(policy: Policy, observations: Sequence[Observation], second: float) -> dict[str, Any]:
    state = Reader(replace(policy, observer="observer-1")).takes(*observations).state
    content = handover.written(CLUSTER, handover.cluster_handover(policy, state, CLUSTER, at(second)))
    document: dict[str, Any] = plain.loads(zlib.decompress(b64decode(content), wbits=31))
    return document


UNWANTED: Final = {
    "uid": "u",
    "generation": 2,
    "reconciled_at": 1,
    "changed_at": {"steady": 9_000_000, "wall": at(9).wall},
    "began": {"steady": 9_000_000, "wall": at(9).wall},
    "plan": "upgrade",
    "unwanted_since": {"steady": 9_000_000, "wall": at(9).wall},
}
LEASE: Final = {"holder_identity": "jm", "acquire_time": "2026-11-20T08:00:00Z", "leader_transitions": 3}


@cache
def handovers() -> list[dict[str, Any]]:
    """Of a cluster that is led, of one that fails over, of one that has no leader and people know, of one that flaps."""
    vacant: list[Observation] = [*(gone(60, path) for path in PATHS), *(Ticked(at(60 + s)) for s in TICKS[:7])]
    flaps = [observation for n in range(4) for observation in (*failover(20 + 10 * n, n + 2), Ticked(at(29 + 10 * n)))]
    documents = [
        _left(PLAIN, first_sight(), 5),
        _left(PLAIN, [*first_sight(), *(gone(60, path) for path in PATHS)], 61),
        _left(PLAIN, [*first_sight(), *vacant], 121),
        _left(PLANS, [*first_sight(), *flaps, *vacant], 121),
    ]
    documents[1] |= {
        "operated": UNWANTED,
        "disruptions": {"uid": {"at": UNWANTED["began"], "pod": "jm-1", "address": ""}},
    }
    documents[3] |= {"lapsed": {"config-map": LEASE}, "pods": {"10.0.0.1": {"name": "jm-1", "named_at": at(1).wall}}}
    documents[3]["standby"] = {
        **dict.fromkeys(("several_since", "alone_since", "lacking_since", "counted_at"), UNWANTED["began"]),
        "left": 3,
        "lacked": 250_000_000,
    }
    return documents


@cache
def whole_handovers() -> list[dict[str, Any]]:
    """With every field of the schema, or with most."""
    return [document(Random(number), handovers()[2 + number % 2], left_out=number / 24) for number in range(12)]


SILENCE: Final = {
    "id": "0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11",
    "matchers": [{"label": "alert", "operator": "=~", "value": "Rule(blind|split)"}],
    "starts_at": at(0).wall,
    "ends_at": at(3600).wall,
    "author": "op",
    "comment": "maintenance",
}


DRILL: Final = {
    **{name: SILENCE[name] for name in ("starts_at", "ends_at", "author", "comment")},
    "id": "2c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11",
    "cluster_id": CLUSTER,
    "expects": "failover",
}


@cache
def ledgers() -> list[dict[str, Any]]:
    """What several sidecars have marked and claimed: an earlier vacancy and its end."""
    reader = Reader(PLAIN).takes(*first_sight()).vanish(10)
    reader.sees(700, 2).waits(700)
    ledger = ledger_document.begun(ledger_document.Ledger(), at(0).wall)
    for number, delivery in enumerate(reader.sent):
        claim = Claim("observer-1", f"{delivery.id}/{number}", renewed=0)
        ledger = claims.claimed(ledger, delivery, claim, at(number).wall)
        if number % 3:
            ledger = claims.marked(ledger, delivery, "observer-1", at(number).wall)
    return [plain.loads(ledger_document.written(ledger, at(1400).wall))]


@cache
def silences() -> list[dict[str, Any]]:
    two = [SILENCE, {**SILENCE, "id": SILENCE["id"].replace("0c", "1c")}]  # type: ignore[attr-defined]
    return [{"format": 1, "silences": two}, {"format": 1, "silences": [SILENCE], "drills": [DRILL]}]


# -- mutations ---------------------------------------------------------------------------------------------------------

HUGE: Final = (
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    10**18,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**30,
    10**400,
    1e308,
    -1e308,
    0.5,
)
TEXTS: Final = (
    "",
    "\0",
    "\x1b[2J\x07",
    "a\u202eb",
    "x" * 1001,
    "x" * 70_000,
    "=1+1",
    "<!channel>",
    "node x",
    "job",
    "zookeeper",
)
_MOST_PLACES: Final = 4_000

_Place = tuple[Any, Any]
"""A list or an object, and an index or a key."""


def _places(value: Any, most: int = _MOST_PLACES) -> list[_Place]:
    places: list[_Place] = []
    waiting = [value]
    while waiting and len(places) < most:
        one = waiting.pop()
        keys = one.keys() if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        places += ((one, key) for key in keys)
        waiting += (one[key] for key in keys)
    return places


def _value(random: Random, of: Any) -> Any:
    """Another value, often of the same kind and near the one that was there."""
    kind = random.randrange(10)
    if isinstance(of, int) and not isinstance(of, bool) and kind < 7:
        return of + random.choice(
            (-1, 1, -SECOND, SECOND, -3600 * SECOND, 3600 * SECOND, 7 * 86_400 * SECOND, random.choice(HUGE[:12]))
        )
    if isinstance(of, bool) and kind < 7:
        return not of
    if isinstance(of, str) and kind < 4:
        return of[: random.randrange(len(of) + 1)] + random.choice(TEXTS[1:4]) + of[random.randrange(len(of) + 1) :]
    return random.choice(
        (None, True, False, [], {}, random.choice(HUGE), random.choice(HUGE), random.choice(TEXTS), [[[]]], {"a": 1})
    )


def plausible(random: Random, document: Any) -> Any:
    """The document with values that each may stand where they do, and do not belong together."""
    document = plain.loads(plain.dumps(document))
    places = _places(document)
    for _ in range(random.choice((1, 2, 5, 20))):
        holder, key = random.choice(places)
        of = holder.get(key) if isinstance(holder, dict) else holder[key]
        twins = [other[its] for other, its in places if its == key and its in other and type(other[its]) is type(of)]
        match of:
            case bool():
                holder[key] = not of
            case int() if key != "format" and random.randrange(2):
                holder[key] = max(0, of - random.choice((0, 1, SECOND, 60 * SECOND, 86_400 * SECOND, of)))
            case None:
                continue
            case _ if isinstance(holder, dict) and twins and key != "format":
                holder[key] = plain.loads(plain.dumps(random.choice(twins)))
    return document


def mutated(random: Random, document: Any) -> Any:
    """The document with a few changes, whatever they are."""
    document = plain.loads(plain.dumps(document))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        places = _places(document)
        if not places:
            break
        holder, key = random.choice(places)
        other, its = random.choice(places)
        match random.randrange(8):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, list) and len(holder) < 200:
                holder += [holder[key]] * random.choice((1, 5, 600))
            case 2 if isinstance(holder, dict) and key in holder:
                twin = holder[key]
                holder |= {f"0c9a4f8e-8f0b-5e0a-9d2c-{n:012x}": twin for n in range(random.choice((1, 20, 600)))}
            case 3:
                holder[key] = plain.loads(plain.dumps(other[its]))
            case _:
                holder[key] = _value(random, holder[key])
        if len(plain.dumps(document)) > 4 << 20:
            break
    return document


def damaged(random: Random, content: bytes) -> bytes:
    """Bytes of which some are others, or are missing."""
    data = bytearray(content)
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(len(data) + 1)
        data[place : place + random.choice((0, 1, 1, 50))] = random.randbytes(random.choice((0, 1, 4)))
    return bytes(data)


def packed(text: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return b64encode(packer.compress(text) + packer.flush())


def _content(random: Random, documents: Sequence[Any]) -> bytes:
    document = random.choice((mutated, plausible))(random, random.choice(documents))
    text = plain.dumps(document).encode()
    return damaged(random, text) if random.randrange(20) == 0 else text


# -- what is done with one ---------------------------------------------------------------------------------------------


def of_handover(random: Random, text: bytes) -> str:
    """A sidecar with an empty folder adopts it."""
    content = packed(text)
    policy = random.choice((PLAIN, FULL))
    try:
        document = handover.read(content, CLUSTER, at(150))
    except handover.HandoverError:
        document = None
    if document:
        again = handover.written(CLUSTER, document)
        if len(again) > MOST_BYTES or handover.read(again, CLUSTER, at(150)) is None:
            raise FuzzError("what was read cannot be written again")
    reader = Reader(policy).takes(Started(at(150)))
    try:
        reader.takes(HandoverRead(at(150), CLUSTER, content))
    except handover.HandoverError:
        if document:
            raise
        return "refused"
    reader.waits(150)
    if random.randrange(2):
        reader.restarts(800)
    reader.sees(800, random.choice((1, 2, 5))).waits(800)
    reader.vanish(1500)
    left = handover.written(CLUSTER, handover.cluster_handover(policy, reader.state, CLUSTER, at(20_000)))
    if handover.read(left, CLUSTER, at(20_000)) is None:
        raise FuzzError("the next one gets no handover")
    return "adopted"


@cache
def _delivery() -> tuple[Delivery, ...]:
    """Of the vacancy that follows, and of its end."""
    reader = Reader(PLAIN).takes(*first_sight()).sees(100, 3).waits(100).vanish(1500)
    first = next(delivery for delivery in reader.sent if VACANT in delivery.alert)
    return first, reader.sees(20_000, 4).waits(20_000).sent[-1]


def of_ledger(random: Random, content: bytes) -> str:
    """A sidecar asks it whether to notify, and notifies."""
    for delivery in _delivery():
        wall = delivery.queued_at.wall
        try:
            ledger = ledger_document.begun(ledger_document.believed(ledger_document.read(content), wall), wall)
        except ForeignLedgerError:
            return "left alone"
        if delivery is _delivery()[0] and claims.standing(ledger, delivery, "us") is ClaimStanding.TOLD:
            raise FuzzError("it says that people know of what happened after it was written")
        ours = Claim("us", "1", renewed=0)
        for second in (*TICKS, LEASE_UNRENEWED // SECOND):
            now = wall + int(second * SECOND)
            claims.repeats(ledger, delivery)
            claims.may_have_arrived(ledger, delivery)
            claims.oldest_news(ledger, delivery)
            claims.ends(ledger, delivery, now)
            claimed = claims.renewed(claims.claimed(ledger, delivery, ours, now), delivery, ours, now)
            released = claims.released(claimed, delivery, ours, now, unsure=bool(random.randrange(2)))
            sent = claims.marked(claimed, delivery, "us", now)
            for changed in (released, sent):
                text = ledger_document.written(changed, now)
                if len(text) > ledger_document.MOST_BYTES:
                    raise FuzzError("it grows without end")
                ledger_document.believed(ledger_document.read(text), now)
            if (
                delivery.reason.value != "RESOLVED"
                and claims.standing(sent, delivery, "other") is not ClaimStanding.TOLD
            ):
                raise FuzzError("what is marked as sent is not")
    return "used"


def of_silences(_: Random, content: bytes) -> str:
    """A sidecar reads it before it notifies."""
    reader = Reader(PLAIN, content).takes(*first_sight()).waits(0)
    reader.restarts(700).sees(700, 1).vanish(1500)
    try:
        silence_document.read(content, LONGEST_SILENCE)
    except SilencesError:
        return "refused"
    return "hid alerts" if reader.suppressed else "used"


KINDS: Final[Mapping[str, tuple[Callable[[], Sequence[Any]], Callable[[Random, bytes], str]]]] = {
    "handover": (handovers, of_handover),
    "ledger": (ledgers, of_ledger),
    "silences": (silences, of_silences),
}


def one(seed: int, number: int) -> str:
    """What became of document `number`. Raises whatever it did wrong."""
    kind = [*KINDS][number % len(KINDS)]
    documents, of = KINDS[kind]
    random = Random(f"{seed}/{number}")
    # Documents that once failed have an even seed: those that begin with the first ones alone stay what they are.
    more = whole_handovers() if kind == "handover" and seed % 2 else []
    content = _content(random, [*documents(), *more])
    began = time.process_time()  # making a document of 100 MB takes longer than refusing it
    outcome = of(random, content)
    if (took := time.process_time() - began) > MOST_SECONDS:
        raise FuzzError(f"it took {took:.1f} s of CPU")
    return f"{kind} {outcome}"


def fuzz(seed: int, numbers: range) -> Iterator[tuple[int, str, Exception | None]]:
    """Number, outcome and error of each document."""
    for number in numbers:
        try:
            yield number, one(seed, number), None
        except Exception as error:  # noqa: BLE001  any error is what is looked for
            yield number, f"{type(error).__name__}: {str(error)[:300]}", error


def main() -> int:
    """The exit status is 1 if a document did anything wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.document_fuzz", description=__doc__)
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one document, with its traceback")
    options = parser.parse_args()
    if options.only is not None:
        sys.stdout.write(f"{one(options.seed, options.only)}\n")
        return 0
    began, counted, failed = time.process_time(), Counter[str](), 0
    for number, outcome, error in fuzz(options.seed, range(options.documents)):
        counted[outcome if error is None else "failed"] += 1
        failed += error is not None
        if error is not None and failed <= 20:
            sys.stdout.write(f"--seed {options.seed} --only {number}: {outcome}\n")
    cpu = time.process_time() - began
    figures = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counted.items()))
    sys.stdout.write(f"seed {options.seed}: {options.documents} documents ({figures}) in {cpu:.0f} s of CPU\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
