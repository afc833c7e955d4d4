"""Files that say what rules are to do: what happens to a cluster, and who is told what of it."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from sidecar.core.alerting.alerts import Reason
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId
from sidecar.settings.file import schema
from sidecar.settings.file.durations import DAY, MINUTE
from sidecar.settings.file.errors import SettingsError, expected
from sidecar.settings.file.schema import Keys
from sidecar.settings.file.section import Section
from sidecar.settings.file.value import Given
from sidecar.settings.rules_only import Offline, document, offline

TEST_FILE: Final = Keys({"rule_files": None, "external_labels": None, **schema.RULE_FILE.defaults, "tests": None})
TEST: Final = Keys({"name": None, "starts": "2026-01-05T12:00:00Z", "until": None, "when": None, "expect": None})
EVENT: Final = Keys(
    {
        "at": None,
        "cluster": "default",
        "submitted": None,
        "leader": None,
        "returns": None,
        "unobserved": "0",
        "gone": None,
        "ended": None,
        "contenders": None,
        "zxid_headroom": None,
        "blind": None,
        "running": None,
    }
)
EXPECTATION: Final = Keys({"at": None, "receiver": None, "alerts": None, "reason": None, "title": None})

AFTERWARDS: Final = 10 * MINUTE
"""So long a test goes on behind its last word, unless it says until when."""
LONGEST: Final = 7 * DAY
ALL: Final = "all"
JOBS: Final = "jobs"
_COMPONENTS: Final = {component.component.value: component for component in CLUSTER_COMPONENTS}
_JOB: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CLUSTER: Final = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9_./-]{0,252}")
_JOB_MANAGER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}(#[0-9]{1,3})?")

Who = ComponentId | str
"""A component of the cluster, or a job by its name."""


class ScenarioEvent(Struct, frozen=True):
    """Something that happens to a cluster, or to the sidecar. What it does not say stays as it is."""

    at: int
    """Microseconds after the test began."""
    cluster: str
    submitted: tuple[str, ...] = ()
    leader: Mapping[Who, str] = {}
    """Who is elected, each JobManager with a new leader session id."""
    returns: Mapping[Who, str] = {}
    """Who publishes itself again, with the leader session id that it had."""
    unobserved: int = 0
    """How many writes came before that, which nobody could see."""
    gone: tuple[Who, ...] = ()
    ended: tuple[str, ...] = ()
    contenders: int | None = None
    zxid_headroom: int | None = None
    blind: bool | None = None
    running: bool | None = None
    """Of the sidecar itself, whatever the cluster."""


class Expectation(Struct, frozen=True):
    """A notification that somebody is to get. None: it does not matter."""

    at: int
    alerts: frozenset[str]
    receiver: str | None = None
    reason: Reason | None = None
    title: str | None = None
    """A part of it."""


class Scene(Struct, frozen=True):
    """What happens, and all that is to be told of it."""

    name: str
    where: str
    starts: int
    """Wall time: microseconds since the epoch."""
    until: int
    when: tuple[ScenarioEvent, ...]
    expect: tuple[Expectation, ...]


class Suite(Struct, frozen=True):
    """Rules, and tests of them."""

    rules: Offline
    tests: tuple[Scene, ...]


def read_tests(path: Path) -> Suite:
    """The tests in a file. Raises SettingsError."""
    file = document(path, TEST_FILE)
    rules = offline(file)
    sections = file.sections("tests", TEST)
    if not sections:
        raise SettingsError(f"{file.where}: holds no tests: list at least one under tests")
    tests: dict[str, Scene] = {}
    for section in sections:
        test = _test(section, rules)
        if test.name in tests:
            raise section.get("name").wrong("is the name of a test before it: rename one")
        tests[test.name] = test
    return Suite(rules, tuple(tests.values()))


def _test(section: Section, rules: Offline) -> Scene:
    jobs: dict[str, set[str]] = {}
    when: list[ScenarioEvent] = []
    for each in section.sections("when", EVENT):
        when.append(_event(each, jobs))
        if when[-1].at < when[max(len(when) - 2, 0)].at:
            raise each.get("at").wrong("is before what stands above it: what happens stands in the order of time")
    if not when:
        raise section.missing("when")
    if "expect" not in section:
        raise SettingsError(f"{section.where}: expect is missing: give [] where nobody is to be told")
    expect = tuple(_expectation(each, rules) for each in section.sections("expect", EXPECTATION))
    last = max([when[-1].at, *(each.at for each in expect)])
    given = section.find("until")
    return Scene(
        section.get("name").text,
        section.where,
        _instant(section.get("starts")),
        given.duration(at_least=last, at_most=LONGEST) if given else last + AFTERWARDS,
        tuple(when),
        expect,
    )


def _event(section: Section, known: dict[str, set[str]]) -> ScenarioEvent:
    cluster = section.get("cluster").matching(_CLUSTER, "the id of a cluster").strip("/")
    jobs = known.setdefault(cluster, set())
    submitted = tuple(given.matching(_JOB, "a name of letters, digits and _") for given in section.texts("submitted"))
    for name, given in zip(submitted, section.texts("submitted"), strict=True):
        if name in {ALL, JOBS, *_COMPONENTS}:
            raise given.wrong("means something else in tests: give the job another name")
    jobs |= {*submitted}
    contenders, headroom = section.find("contenders"), section.find("zxid_headroom")
    blind, running = section.find("blind"), section.find("running")
    event = ScenarioEvent(
        at=section.get("at").duration(at_most=LONGEST),
        cluster=cluster,
        submitted=submitted,
        leader=_leaders(section, "leader", jobs),
        returns=_leaders(section, "returns", jobs),
        unobserved=section.get("unobserved").integer(0, 1_000_000),
        gone=tuple(who for given in section.texts("gone") for who in _who(given, given.text, jobs)),
        ended=tuple(_job(given, given.text, jobs) for given in section.texts("ended")),
        contenders=contenders.integer(0, 1000) if contenders else None,
        zxid_headroom=headroom.integer(0, (1 << 32) - 1) if headroom else None,
        blind=blind.flag() if blind else None,
        running=running.flag() if running else None,
    )
    jobs -= {*event.ended}
    return event


def _leaders(section: Section, key: str, jobs: set[str]) -> dict[Who, str]:
    return {
        who: given.matching(_JOB_MANAGER, "a host like jm-0, or jm-0#2 for another process there")
        for name, given in section.labels(key).items()
        for who in _who(given, name, jobs)
    }


def _who(given: Given, name: str, jobs: set[str]) -> tuple[Who, ...]:
    match name:
        case "all":
            return (*CLUSTER_COMPONENTS, *sorted(jobs))
        case "jobs":
            return tuple(sorted(jobs))
    return (_COMPONENTS.get(name) or _job(given, name, jobs),)


def _job(given: Given, name: str, jobs: set[str]) -> str:
    if name not in jobs:
        raise given.error(f'"{name}" was not submitted: {expected({ALL, JOBS, *_COMPONENTS, *jobs}, name)}')
    return name


def _expectation(section: Section, rules: Offline) -> Expectation:
    receiver, reason, title = (section.find(key) for key in ("receiver", "reason", "title"))
    names = {each.name for each in rules.alerting.receivers}
    if receiver and receiver.text not in names:
        raise receiver.wrong(f"is none of the receivers: {expected(names, receiver.text)}")
    known = {rule.alert for rule in rules.alerting.rules}
    alerts = section.texts("alerts")
    if not alerts:
        raise section.missing("alerts")
    for alert in alerts:
        if alert.text not in known:
            raise alert.wrong(f"is none of the rules: {expected(known, alert.text)}")
    return Expectation(
        section.get("at").duration(at_most=LONGEST),
        frozenset(alert.text for alert in alerts),
        receiver.text if receiver else None,
        reason.choice(Reason) if reason else None,
        title.text if title else None,
    )


def _instant(given: Given) -> int:
    try:
        at = datetime.fromisoformat(given.text)
    except ValueError:
        raise given.wrong('is no time: write it like "2026-01-05T12:00:00Z"') from None
    if at.tzinfo is None or not 1971 <= at.year <= 9000:
        raise given.wrong('needs its distance from UTC: write it like "2026-01-05T12:00:00Z"')
    return int(at.timestamp()) * 1_000_000
