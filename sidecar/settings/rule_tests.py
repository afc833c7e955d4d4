"""Test files of rules: what happens to a cluster, and which notifications are expected."""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct

from sidecar.core.alerting.alerts import Reason
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId
from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.ha.results import CHECKS
from sidecar.core.reach import Reach
from sidecar.settings.alerting.alerting import RuleFile
from sidecar.settings.file.durations import DAY, MINUTE
from sidecar.settings.file.key import Choice, Duration, Integer, Key, keys_of
from sidecar.settings.file.section import Section, read_file, unique_sections
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError, did_you_mean
from sidecar.settings.loader import rules_in
from sidecar.settings.model import Alerting

AFTERWARDS: Final = 10 * MINUTE
"""A test without `until` goes on for this long after its last event or expectation."""
LONGEST: Final = 7 * DAY
_COMPONENTS: Final = {component.component.value: component for component in CLUSTER_COMPONENTS}
_RESERVED: Final = frozenset({"all", "jobs", *_COMPONENTS})
_JOB: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CLUSTER: Final = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9_./-]{0,252}")
_JOB_MANAGER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}(#[0-9]{1,3})?")

_AT: Final = Duration(at_most=LONGEST)

Who = ComponentId | str
"""A component of the cluster, or the name of a job."""


def _instant(setting: Setting) -> int:
    try:
        at = datetime.fromisoformat(setting.text)
    except ValueError:
        raise setting.invalid('is not a time: write it like "2026-01-05T12:00:00Z"') from None
    if at.tzinfo is None or not 1971 <= at.year <= 9000:
        raise setting.invalid('needs a UTC offset: write it like "2026-01-05T12:00:00Z"')
    return int(at.timestamp()) * 1_000_000


class OperatorAct(StrEnum):
    """An event of the cluster's FlinkDeployment. It exists from the first such event on."""

    CHANGED = "changed"
    """Somebody applies another spec."""
    UPGRADING = "upgrading"
    DEPLOYED = "deployed"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    DELETED = "deleted"


class JobAct(StrEnum):
    """A state of a job that Flink's REST server reports from now on."""

    RUNNING = "running"
    RESTARTING = "restarting"
    FAILED = "failed"
    MISSING = "missing"
    """Flink does not list the job, and its plan is gone."""
    FROM_OLDER = "from_older"
    """The job runs, restored from an older checkpoint."""
    FROM_NOTHING = "from_nothing"
    """The job runs, and began without state."""


class ScenarioEvent(Struct, frozen=True):
    """A change of a cluster, or of the sidecar. Default values change nothing."""

    at: Annotated[int, Key(_AT)]
    """Microseconds after the start of the test."""
    cluster: Annotated[str, Key(default="default")]
    submitted: Annotated[tuple[str, ...], Key()] = ()
    leader: Annotated[Mapping[Who, str], Key()] = {}
    """The JobManagers that are elected, each with a new leader session id."""
    returns: Annotated[Mapping[Who, str], Key()] = {}
    """The JobManagers that publish themselves again, with their previous leader session ids."""
    unobserved: Annotated[int, Key(Integer(0, 1_000_000), "0")] = 0
    """Unobserved writes before those of `leader` and `returns`."""
    gone: Annotated[tuple[Who, ...], Key()] = ()
    ended: Annotated[tuple[str, ...], Key()] = ()
    jobs: Annotated[Mapping[str, JobAct], Key()] = {}
    rest: Annotated[Reach | None, Key(Choice(Reach))] = None
    """How far requests to the leading REST server get from now on."""
    contenders: Annotated[int | None, Key(Integer(0, 1000))] = None
    zxid_headroom: Annotated[int | None, Key(Integer(0, (1 << 32) - 1))] = None
    checks: Annotated[Mapping[str, CheckVerdict], Key()] = {}
    """The verdicts of checks of high availability from now on."""
    operator: Annotated[OperatorAct | None, Key(Choice(OperatorAct))] = None
    blind: Annotated[bool | None, Key(Setting.flag)] = None
    running: Annotated[bool | None, Key(Setting.flag)] = None
    """Whether the sidecar itself runs, whatever the cluster."""

    @property
    def is_of_rest(self) -> bool:
        """True if it says anything of Flink's REST server."""
        return bool(self.jobs or self.rest)


class NotificationInTest(Struct, frozen=True):
    """A notification that a test expects, or one that was sent in it. Expected: None is any value, and `title` a part of it."""

    at: Annotated[int, Key(_AT)]
    """Microseconds after the start of the test."""
    alerts: Annotated[tuple[str, ...], Key()]
    receiver: Annotated[str | None, Key()] = None
    reason: Annotated[Reason | None, Key(Choice(Reason))] = None
    title: Annotated[str | None, Key(attrgetter("text"))] = None


class RuleTest(Struct, frozen=True):
    """Events, and all expected notifications."""

    name: Annotated[str, Key(attrgetter("text"))]
    location: str
    starts: Annotated[int, Key(_instant, "2026-01-05T12:00:00Z")]
    """Wall time: microseconds since the epoch."""
    until: Annotated[int, Key()]
    when: Annotated[tuple[ScenarioEvent, ...], Key(inside=(ScenarioEvent,), many=tuple)]
    expect: Annotated[tuple[NotificationInTest, ...], Key(inside=(NotificationInTest,), many=tuple)]


class _TestFile(Struct, frozen=True):
    rule_files: Annotated[tuple[Path, ...], Key()]
    external_labels: Annotated[dict[str, str], Key()]
    tests: Annotated[tuple[RuleTest, ...], Key(inside=(RuleTest,), many=tuple)]


class Suite(Struct, frozen=True):
    """Rules and their tests."""

    rules: Alerting
    tests: tuple[RuleTest, ...]


def read_tests(path: Path) -> Suite:
    """The tests in a file. Raises SettingsError."""
    file = read_file(path, keys_of(_TestFile, RuleFile))
    rules = rules_in(file)
    tests = tuple(_test(section, rules) for section in unique_sections([file], "tests"))
    if not tests:
        raise SettingsError(f"{file.location}: has no tests: list at least one under tests")
    return Suite(rules, tests)


def _test(section: Section, rules: Alerting) -> RuleTest:
    jobs: dict[str, set[str]] = {}
    when: list[ScenarioEvent] = []
    for part in section.sections("when"):
        when.append(_event(part, jobs))
        if when[-1].at < when[max(len(when) - 2, 0)].at:
            raise part.get("at").invalid("is before the event above it: list events in the order of time")
    if not when:
        raise section.missing("when")
    if "expect" not in section:
        raise SettingsError(f"{section.location}: expect is missing: give [] if no notification is expected")
    expect = tuple(_expectation(part, rules) for part in section.sections("expect"))
    last = max([when[-1].at, *(part.at for part in expect)])
    return section.make(
        RuleTest,
        location=section.location,
        until=section.read("until", Duration(last, LONGEST), last + AFTERWARDS),
        when=tuple(when),
        expect=expect,
    )


def _event(section: Section, jobs_of: dict[str, set[str]]) -> ScenarioEvent:
    cluster = section.get("cluster").matching(_CLUSTER, "the id of a cluster").strip("/")
    jobs = jobs_of.setdefault(cluster, set())
    submitted = tuple(map(_new_job, section.texts("submitted")))
    jobs |= {*submitted}
    event = section.make(
        ScenarioEvent,
        cluster=cluster,
        submitted=submitted,
        leader=_leaders(section, "leader", jobs),
        returns=_leaders(section, "returns", jobs),
        gone=tuple(who for setting in section.texts("gone") for who in _who(setting, setting.text, jobs)),
        ended=tuple(_job(setting, setting.text, jobs) for setting in section.texts("ended")),
        jobs={_job(setting, name, jobs): setting.choice(JobAct) for name, setting in section.labels("jobs").items()},
        checks={_check(setting, name): _verdict(setting) for name, setting in section.labels("checks").items()},
    )
    jobs -= {*event.ended}
    return event


def _check(setting: Setting, name: str) -> str:
    if name not in CHECKS:
        raise setting.error(f"is about no check: {did_you_mean(CHECKS, name)}")
    return name


def _verdict(setting: Setting) -> CheckVerdict:
    return CheckVerdict(setting.one_of([verdict.lower() for verdict in CheckVerdict], "verdicts").upper())


def _new_job(setting: Setting) -> str:
    name = setting.matching(_JOB, "a name of letters, digits and _")
    if name in _RESERVED:
        raise setting.invalid("has another meaning in tests: give the job another name")
    return name


def _leaders(section: Section, key: str, jobs: set[str]) -> dict[Who, str]:
    return {
        who: setting.matching(_JOB_MANAGER, "a host like jm-0, or jm-0#2 for another process there")
        for name, setting in section.labels(key).items()
        for who in _who(setting, name, jobs)
    }


def _who(setting: Setting, name: str, jobs: set[str]) -> tuple[Who, ...]:
    match name:
        case "all":
            return (*CLUSTER_COMPONENTS, *sorted(jobs))
        case "jobs":
            return tuple(sorted(jobs))
    return (_COMPONENTS.get(name) or _job(setting, name, jobs),)


def _job(setting: Setting, name: str, jobs: set[str]) -> str:
    if name not in jobs:
        raise setting.error(f'"{name}" was not submitted: {did_you_mean(_RESERVED | jobs, name)}')
    return name


def _expectation(section: Section, rules: Alerting) -> NotificationInTest:
    rule_names = {rule.alert for rule in rules.rules}
    receiver_names = {receiver.name for receiver in rules.receivers}
    alerts = tuple(sorted({setting.one_of(rule_names, "rules") for setting in section.texts("alerts")}))
    if not alerts:
        raise section.missing("alerts")
    receiver = section.read("receiver", lambda setting: setting.one_of(receiver_names, "receivers"), None)
    return section.make(NotificationInTest, alerts=alerts, receiver=receiver)
