"""Whether what was said of a scenario was true: every message at the moment at which it arrived, and all surfaces with each other."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tests.night.arrivals import Said
from tests.night.claims import INEXACT_SECONDS, Finding, Kind, of_message, of_status
from tests.night.night import Played
from tests.night.scenario import Scenario
from tests.night.truth import End, take_turns

SAID_SECONDS: Final = 10.0
"""From the detection of a loss, which is when its rule applies, to the message."""
_HOLDS: Final[Mapping[str, float]] = {
    "FlinkNoLeader": 30.0,
    "FlinkLeaderSilent": 8.0,
    "FlinkNotRecovered": 300.0,
    "FlinkLeadersOutOfSight": 120.0,
}
"""`for` of the shipped rules."""
_RUN_AGAIN: Final = re.compile(
    r"jobs run again, (?P<at_least>at least )?(?P<low>[\d.]+)(?: to (?P<high>[\d.]+))? s after"
)


class Judged(Struct, frozen=True):
    """One fact that was recorded of a failover, beside the truth."""

    what: str
    """`cause`, `death`, `recovery` or `planned`."""
    said: str | None
    """None: nothing, where something was to be known."""
    confidence: str
    right: bool | None
    """None: `unknown`, `unproven`, or nothing."""
    truth: str


class Verdict(Struct, frozen=True):
    """What is wrong with one scenario, and what was recorded of its failovers."""

    name: str
    findings: tuple[Finding, ...]
    judged: tuple[Judged, ...]
    failovers: int
    titles: tuple[str, ...]
    """Of the webhook's messages, with seconds since the scenario began."""
    said_after: float | None
    """Seconds from the first loss (a process that ended, or a leader that was gone) to the first message."""


def judge(played: Played, scenario: Scenario) -> Verdict:
    """Everything that is wrong, in words, and what the records say."""
    if take_turns(played.truth):
        scenario = replace(scenario, **_split(scenario))
    messages = [one for one in played.said if one.channel == "webhook"]
    judged = [
        *_causes(played, scenario),
        *_deaths(played, scenario),
        *_recoveries(played, scenario),
        *_plans(played, scenario),
    ]
    findings = [
        *(finding for one in played.said for finding in of_message(one, played, scenario)),
        *_of_surfaces(played, scenario),
        *(
            Finding(_KINDS[one.what], f"{one.said} ({one.confidence}), in truth {one.truth}")
            for one in judged
            if one.right is False
        ),
        *_durations(played),
        *_of_arrival(messages, played, scenario),
        *_of_the_end(messages, played, scenario),
    ]
    lost = [sample.at for sample in played.truth if sample.leader != played.led_before]
    began = min([*lost[:1], *(end.at for end in played.ends)], default=None)
    first = next((one.at for one in messages if began and one.at >= began), None)
    return Verdict(
        played.name,
        tuple(findings),
        tuple(judged),
        len(_records(played, "episode")),
        tuple(f"+{one.at - played.began:.0f} s {one.title}" for one in messages),
        first - began if first and began else None,
    )


def _split(scenario: Scenario) -> Mapping[str, frozenset[str]]:
    """What else is true once two JobManagers take turns: it does not end by itself, and what a REST server answers is chance."""
    unsettled = frozenset({"SPLIT", "DOWN", "RECOVERING", "UNCHECKED"})
    return {
        "causes": scenario.causes | {"split_leadership"},
        "through": scenario.through | unsettled,
        "final": scenario.final | unsettled,
    }


_KINDS: Final = {"cause": Kind.CAUSE, "death": Kind.DEATH, "recovery": Kind.RECOVERY, "planned": Kind.PLANNED}


def _records(played: Played, kind: str) -> list[Mapping[str, Any]]:
    return [record for record in played.records if record["type"] == kind]


# -- messages ----------------------------------------------------------------------------------------------------------


def _of_arrival(messages: Sequence[Said], played: Played, scenario: Scenario) -> Iterator[Finding]:
    """Whether something arrived if it had to, and in time."""
    told = [one for one in messages if one.status]
    if scenario.said is False and messages:
        yield Finding(Kind.NOISE, messages[0].title)
    if scenario.said and not told:
        yield Finding(Kind.UNSAID, f"{len(messages)} messages about something else")
    for one in [one for one in told if one.reason == "FIRST" and one.began][:1]:
        begins = one.begins or dict.fromkeys(one.alerts, one.began or 0)
        detected = min((began + _HOLDS.get(alert, 0.0) for alert, began in begins.items()), default=one.began or 0)
        detected = max(detected, played.acted) if scenario.unobserved else detected
        if not scenario.planned and one.at - detected > SAID_SECONDS:
            yield Finding(Kind.LATE, f"{one.at - detected:.0f} s: {one.title}")


# -- surfaces, and the end ---------------------------------------------------------------------------------------------


def _of_surfaces(played: Played, scenario: Scenario) -> Iterator[Finding]:
    """Where two of them say different things, or one says what is not so. Each kind of it once."""
    found: dict[tuple[Kind, str], Finding] = {}
    for surface in played.surfaces:
        where = f"API, +{surface.at - played.began:.0f} s: {surface.status}"
        if surface.differs:
            found.setdefault(
                (Kind.SURFACES, surface.differs),
                Finding(Kind.SURFACES, f"+{surface.at - played.began:.0f} s: {surface.differs}"),
            )
        if surface.status:
            for finding in of_status(surface.status, surface.sentence, surface.at, where, played, scenario):
                found.setdefault((finding.kind, surface.status), finding)
    yield from found.values()


def _of_the_end(messages: Sequence[Said], played: Played, scenario: Scenario) -> Iterator[Finding]:
    """The last status, the last message about it, and the records."""
    last = played.surfaces[-1].status if played.surfaces else None
    if last not in scenario.final:
        yield Finding(Kind.END, f"{last}, in truth {' or '.join(sorted(scenario.final))}")
    told = [one for one in messages if one.status]
    if told and told[-1].status not in scenario.final:
        yield Finding(Kind.END, f"the last message is {told[-1].title}")
    recorded = _records(played, "status")
    if recorded and last and recorded[-1]["status"] != last:
        yield Finding(Kind.SURFACES, f"records end with {recorded[-1]['status']}, the API with {last}")
    causes = {record["id"]: record["cause"] for record in _records(played, "episode")}
    latest = {one.facts["episode"]: one for one in told if "episode" in one.facts}
    for episode, one in latest.items():
        cause = one.facts.get("cause", "").partition(" ")[0]
        if cause and cause != causes.get(episode, cause):
            yield Finding(Kind.SURFACES, f"the last message has the cause {cause}, the record {causes[episode]}")


def _durations(played: Played) -> Iterator[Finding]:
    """Of a failover by the end of a process: the bounds of the time without a working leader, and until all jobs ran again.

    What hung until another one led ends too, but later.
    """
    episodes, ends = _records(played, "episode"), [end for end in played.ends if played.led_before in end.addresses]
    if (
        len(episodes) != 1
        or len(ends) != 1
        or len(played.ends) != 1
        or not all(sample.store for sample in played.truth)
        or any(sample.at < ends[0].at and sample.leader not in {played.led_before, None} for sample in played.truth)
    ):
        return
    after = [sample for sample in played.truth if sample.at > ends[0].at]
    led = next((sample.at for sample in after if sample.leader), None)
    least, most = (episodes[0][f"downtime_seconds_at_{which}"] for which in ("least", "most"))
    if led and least is not None and most is not None:
        yield from _duration("without a working leader for", least, most, led - ends[0].at)
    ran = next((sample.at for sample in after if sample.leader and sample.running == played.jobs), None)
    said = next((found for one in played.said if (found := _RUN_AGAIN.search(one.title))), None)
    if ran and said:
        low = float(said["low"])
        high = float(said["high"]) if said["high"] else inf if said["at_least"] else low
        yield from _duration("all jobs ran again after", low, high, ran - ends[0].at)


def _duration(what: str, least: float, most: float, truly: float) -> Iterator[Finding]:
    if not least - INEXACT_SECONDS <= truly <= most + INEXACT_SECONDS:
        yield Finding(Kind.DURATION, f"{what} {least:.1f} to {most:.1f} s, in truth {truly:.1f} s")


# -- records -----------------------------------------------------------------------------------------------------------


def _causes(played: Played, scenario: Scenario) -> Iterator[Judged]:
    truth = " or ".join(sorted(scenario.causes)) or "no failover"
    for record in _records(played, "episode"):
        right = None if record["cause"] in {"unknown", "observer_blind"} else record["cause"] in scenario.causes
        yield Judged("cause", record["cause"], record["confidence"], right, truth)


def _deaths(played: Played, scenario: Scenario) -> Iterator[Judged]:
    """Of each that is recorded: whether that process ended, how, and with which code. And a leader that ended, of which nothing is."""
    recorded = _records(played, "death")
    for record in recorded:
        ends = [end for end in played.ends if any(address in (record["address"] or "") for address in end.addresses)]
        truth = " or ".join(_true_reasons(ends, scenario)) or "it lives"
        unknown = record["reason"] == "unknown"
        codes = {end.code for end in ends}
        code_right = record["exit_code"] is None or None in codes or record["exit_code"] in codes
        right = None if unknown else record["reason"] in _true_reasons(ends, scenario) and code_right
        yield Judged(
            "death", record["reason"], record["confidence"], right, truth if code_right else f"{truth}, exit {codes}"
        )
    ends = [end for end in played.ends if played.led_before in end.addresses]
    if ends and not recorded and _records(played, "episode"):
        yield Judged("death", None, "none", None, " or ".join(_true_reasons(ends, scenario)))


def _true_reasons(ends: Sequence[End], scenario: Scenario) -> list[str]:
    reasons = {"killed": {"killed"}, "stopped": {"stopped", *scenario.ends_by}, "": scenario.ends_by}
    return sorted({reason for end in ends for reason in reasons[end.by]})


def _recoveries(played: Played, scenario: Scenario) -> Iterator[Judged]:
    rows = [record for record in _records(played, "recovery") if record["job_id"] is None]
    for record in rows[-1:]:  # those before it were cut short by the next failover
        verdict = record["verdict"]
        right = None if verdict == "unproven" else verdict in scenario.recovery
        yield Judged("recovery", verdict, "", right, " or ".join(sorted(scenario.recovery)))


def _plans(played: Played, scenario: Scenario) -> Iterator[Judged]:
    """Where somebody does something to a process alone, either label is right."""
    for record in _records(played, "episode") if scenario.deployed or not scenario.planned else ():
        planned = record["planned"]
        right = None if planned is None else planned == scenario.deployed
        yield Judged(
            "planned", None if planned is None else str(planned).lower(), "", right, str(scenario.deployed).lower()
        )
