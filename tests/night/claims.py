"""Whether one message, or what a surface says at one moment, is so: its title, its status and its sentence."""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from sidecar.core.cluster.record_lines import DUPLICATE_NOTE
from tests.night.arrivals import Said
from tests.night.night import Played
from tests.night.scenario import Scenario
from tests.night.truth import Sample

MOST_TITLE: Final = 80
MOST_BODY: Final = 600
PICTURE_SECONDS: Final = 13.0
"""How old a picture of the cluster may be, and with it what is said of jobs; and a sample of the truth."""
_ON_ITS_WAY: Final = 5.0
"""How long a message may be under way."""
INEXACT_SECONDS: Final = 3.0
"""The truth is sampled, and a JobManager that ends takes its time to answer."""
STATUSES: Final = frozenset(
    ("DOWN", "SPLIT", "LOST", "NOT_RUNNING", "SILENT", "RECOVERING", "DEGRADED", "BLIND", "UNCHECKED", "STOPPED", "OK")
)
_RED: Final = frozenset({"DOWN", "SPLIT", "LOST", "NOT_RUNNING"})
_LABELS_OF_NO_INCIDENT: Final = frozenset({"DRILL", "HEARTBEAT", "INFO", "WARNING", "CRITICAL"})
_TITLE: Final = re.compile(r"\[([A-Z_]+)\] (.*)", re.DOTALL)
_JOBS: Final = re.compile(r"\b(\d+) of (\d+) jobs run\b")
_LEADERLESS: Final = re.compile(r"\bno leader for (\d+) s\b")
_LEADS: Final = re.compile(r"(\d+\.\d+\.\d+\.\d+(?::\d+)?) leads\b")

_PUBLISHED_SECONDS: Final = 8.0
"""A dead leader is published until its session has ended: so long nobody can know."""


class Kind(StrEnum):
    """What may be wrong."""

    GREEN = "green while a job does not run"
    RED = "red for a planned action"
    DEATH = "a wrong death"
    CAUSE = "a wrong cause"
    RECOVERY = "a wrong recovery"
    PLANNED = "planned and lost confused"
    STATUS = "a status that is not so"
    SENTENCE = "a sentence that is not so"
    DURATION = "a wrong duration"
    TITLE = "a title or text that is too long, or does not say the status"
    SURFACES = "surfaces that say different things"
    LATE = "later than 10 s after its detection"
    UNSAID = "a loss that nobody was told of"
    NOISE = "a message about nothing"
    END = "another status at the end"


class Finding(NamedTuple):
    """One thing that is wrong."""

    kind: Kind
    words: str


def of_message(one: Said, played: Played, scenario: Scenario) -> Iterator[Finding]:
    """What is wrong with it."""
    yield from of_title(one)
    label = one.status or _label(one.title)
    if label not in STATUSES:
        return
    where = f"{one.channel}, +{one.at - played.began:.0f} s: {one.title}"
    if scenario.planned and label in _RED:
        yield Finding(Kind.RED, where)
    if one.green or label == "OK":
        samples = _samples(played, one.at - _ON_ITS_WAY, one.at)
        if samples and not any(_is_true("OK", sample, played, scenario) for sample in samples):
            yield Finding(Kind.GREEN, f"{where} ({_words(samples)})")
    yield from of_status(label, one.sentence, one.at, where, played, scenario)


def of_title(one: Said) -> Iterator[Finding]:
    """Its length and that of its text, its label, and whether it says the status as the message's own fields have it."""
    text = one.text.removesuffix(DUPLICATE_NOTE).rstrip()  # it comes with sending, behind the facts
    if one.channel == "webhook" and len(text) > MOST_BODY:
        yield Finding(Kind.TITLE, f"{len(text)} characters of text: {one.title}")
    if len(one.title) > MOST_TITLE:
        yield Finding(Kind.TITLE, f"{len(one.title)} characters: {one.title}")
    label = _label(one.title)
    if label not in STATUSES | _LABELS_OF_NO_INCIDENT:
        yield Finding(Kind.TITLE, f"no status: {one.title}")
    elif one.status and label != one.status:
        yield Finding(Kind.TITLE, f"the cluster is {one.status}: {one.title}")
    elif one.status and one.sentence and one.sentence.partition(",")[0][:20] not in one.title:
        yield Finding(Kind.TITLE, f"the status says {one.sentence!r}: {one.title}")


def _label(title: str) -> str:
    said = _TITLE.match(title)
    return said[1] if said else ""


def of_status(
    label: str, sentence: str, at: float, where: str, played: Played, scenario: Scenario
) -> Iterator[Finding]:
    samples = _samples(played, at - PICTURE_SECONDS, at + 1)
    if label == "OK" and at < played.began + _PUBLISHED_SECONDS:
        return  # a green message is judged by itself
    if label not in scenario.through | scenario.final:
        yield Finding(Kind.STATUS, f"never true here: {where}")
    elif samples and not any(_is_true(label, sample, played, scenario) for sample in samples):
        yield Finding(Kind.STATUS, f"{where} ({_words(samples)})")
    else:
        yield from (
            Finding(Kind.SENTENCE, f"{wrong}: {where}: {sentence}")
            for wrong in _of_sentence(sentence, samples, at, played)
        )


def _samples(played: Played, begin: float, end: float) -> Sequence[Sample]:
    return [sample for sample in played.truth if begin <= sample.at <= end]


def _is_true(label: str, sample: Sample, played: Played, scenario: Scenario) -> bool:
    """Whether a cluster that is so may be called `label`. What the sample does not know contradicts nothing."""
    led, asked = sample.leader is not None, sample.running is not None
    all_run = sample.running is not None and sample.running >= played.jobs
    is_true = {
        "DOWN": not led or not all_run,  # jobs may be without a leader
        "OK": led and (all_run or not asked),
        "DEGRADED": led and (all_run or not asked),
        "RECOVERING": not all_run or sample.task_managers == 0,
        "NOT_RUNNING": not all_run or sample.task_managers == 0,
        "SILENT": not asked,
        "UNCHECKED": led or not sample.store,
        "LOST": "LOST" in scenario.final,
        "SPLIT": "SPLIT" in scenario.through,
    }
    return is_true.get(label, True)  # BLIND and STOPPED: where the scenario has them


def _of_sentence(sentence: str, samples: Sequence[Sample], at: float, played: Played) -> Iterator[str]:
    if not samples:
        return
    if said := _JOBS.search(sentence):
        known = [sample.running for sample in samples]
        if None not in known and int(said[1]) not in known:
            yield f"{said[0]}, in truth {known[-1]}"
    if "no TaskManager is registered" in sentence and all(sample.task_managers for sample in samples):
        yield f"{samples[-1].task_managers} TaskManagers are registered"
    if said := _LEADS.match(sentence):
        led_by = [sample.leader for sample in samples if sample.leader]
        led_by += [address for end in played.ends if samples[0].at <= end.at <= at for address in end.addresses]
        if not any(said[1] in leader for leader in led_by):
            yield f"{samples[-1].leader} leads"
    if said := _LEADERLESS.search(sentence):
        written = at - _ON_ITS_WAY
        led = max(
            (sample.at for sample in played.truth if sample.leader and sample.at <= written), default=played.began
        )
        if int(said[1]) > at - led + INEXACT_SECONDS:
            yield f"no leader for {at - led:.0f} s at most"


def _words(samples: Sequence[Sample]) -> str:
    last = samples[-1]
    store = "" if last.store else ", without a store"
    return f"{last.leader or 'no leader'}, {last.running} jobs run, {last.task_managers} TaskManagers{store}"
