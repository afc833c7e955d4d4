"""Whether what was said of a scenario was true: every message at the moment at which it arrived, and all surfaces with each other."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from sidecar.lab.receivers import ReceivedMessage
from tests.night.night import Played
from tests.night.scenarios import SCENARIOS
from tests.night.truth import Sample

MOST_TITLE: Final = 80
SAID_SECONDS: Final = 10.0
"""From the moment at which a loss can be seen in the store until a message about it, beside `group_wait`."""
_GROUP_WAIT: Final = 5.0
_ON_ITS_WAY: Final = 4.0
"""What a message says was true at most so long before it arrived: the attempt to deliver it, and a sample of the truth."""
_TITLE: Final = re.compile(r"\[([A-Z_]+)\] ")
_RED: Final = frozenset({"DOWN", "SPLIT", "LOST", "NOT_RUNNING"})
_LABELS_OF_NO_INCIDENT: Final = frozenset({"DRILL", "HEARTBEAT", "INFO", "WARNING", "CRITICAL"})


class Verdict(Struct, frozen=True):
    """What is wrong with one scenario's messages, and what was found out of its failover."""

    name: str
    findings: tuple[str, ...]
    cause: str | None
    cause_confidence: str | None
    cause_right: bool | None
    """None: nothing was said, or `unknown`."""
    death: str | None
    death_confidence: str | None
    death_right: bool | None
    said_after: float | None
    """Seconds from the loss in the store to the first message."""
    recovery: str | None


def judge(played: Played) -> Verdict:
    """Everything that is wrong, in words, and what the records say."""
    scenario = SCENARIOS[played.name]
    findings = [finding for message in played.messages for finding in _of_message(played, message)]
    findings += _of_surfaces(played)
    lost_at = next((sample.at for sample in played.truth if sample.leader != played.led_before), None)
    first = next((message.at for message in played.messages), None)
    said_after = first - lost_at if first and lost_at else None
    if scenario.silent and played.messages:
        findings.append(f"nothing is to be said: {played.messages[0].title}")
    if not scenario.silent and not scenario.planned and first is None:
        findings.append("nothing was said")
    if scenario.planned:
        findings += [f"red for a planned action: {m.title}" for m in played.messages if _label(m) in _RED]
    if played.surfaces and played.surfaces[-1].status not in scenario.final:
        findings.append(f"it ends as {played.surfaces[-1].status}, not as {' or '.join(sorted(scenario.final))}")
    episodes = [record for record in played.records if record["type"] == "episode"]
    deaths = [record for record in played.records if record["type"] == "death"]
    recoveries = [r for r in played.records if r["type"] == "recovery" and r["job_id"] is None]
    episode, death = (records[0] if records else {} for records in (episodes, deaths))
    cause, reason = episode.get("cause"), death.get("reason")
    if reason and not scenario.deaths:
        findings.append(f"a death that was none: {reason}")
    return Verdict(
        played.name,
        tuple(findings),
        cause,
        episode.get("confidence"),
        cause in scenario.causes if cause and cause != "unknown" else None,
        reason,
        death.get("confidence"),
        reason in scenario.deaths if reason and reason != "unknown" else None,
        said_after,
        recoveries[-1]["verdict"] if recoveries else None,
    )


def _of_message(played: Played, message: ReceivedMessage) -> Iterator[str]:
    if len(message.title) > MOST_TITLE:
        yield f"a title of {len(message.title)} characters: {message.title}"
    if not (label := _label(message)):
        yield f"a title without a status: {message.title}"
        return
    kind = json.loads(message.raw).get("type")
    if label in _LABELS_OF_NO_INCIDENT:
        return
    if kind == "success" and label != "OK":
        yield f"green, and not OK: {message.title}"
    samples = [sample for sample in played.truth if message.at - _ON_ITS_WAY <= sample.at <= message.at]
    if samples and not any(_is_true(label, sample, played.expected_jobs) for sample in samples):
        yield f"not true when it arrived ({_words(samples)}): {message.title}"


def _label(message: ReceivedMessage) -> str:
    """The word in brackets; empty: there is none."""
    said = _TITLE.match(message.title)
    return said[1] if said else ""


def _is_true(label: str, sample: Sample, jobs: int) -> bool:
    """Whether a cluster that is so may be called `label`. What the sample does not know contradicts nothing."""
    match label:
        case "DOWN":
            return sample.leader is None
        case "OK":
            return sample.leader is not None and (sample.running is None or sample.running >= jobs)
        case "RECOVERING" | "NOT_RUNNING" | "UNCHECKED" | "DEGRADED":
            return sample.leader is not None
    return True


def _words(samples: Sequence[Sample]) -> str:
    last = samples[-1]
    return f"{last.leader or 'no leader'}, {last.running} jobs run, {last.task_managers} TaskManagers"


def _of_surfaces(played: Played) -> Iterator[str]:
    """Where two of them say different things, and where one says OK while a job does not run."""
    for surface in played.surfaces:
        if not surface.is_one:
            yield f"surfaces differ: {surface}"
        samples = [s for s in played.truth if surface.at - 2 * _ON_ITS_WAY <= s.at <= surface.at + 1]
        known = [sample for sample in samples if sample.running is not None]
        if surface.status == "OK" and known and all(sample.running < played.expected_jobs for sample in known):  # type: ignore[operator]  # known
            yield f"OK while {_words(known)}"
