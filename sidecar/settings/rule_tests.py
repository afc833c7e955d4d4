"""Test files of rules: what happens to a cluster, and which notifications are expected."""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from sidecar.core.alerting.alerts import Reason
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId
from sidecar.core.ha.finding import Verdict
from sidecar.core.ha.results import CHECKS
from sidecar.core.reach import Reach
from sidecar.settings.file import schema
from sidecar.settings.file.did_you_mean import did_you_mean
from sidecar.settings.file.durations import DAY, MINUTE
from sidecar.settings.file.schema import Keys, no_default
from sidecar.settings.file.section import Section, read_file, unique_sections
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.model import Alerting
from sidecar.settings.rules_only import rules_in

TEST_FILE: Final[Keys] = {**no_default("rule_files", "external_labels"), **schema.RULE_FILE, "tests": None}
TEST: Final[Keys] = {"name": None, "starts": "2026-01-05T12:00:00Z", **no_default("until", "when", "expect")}
EVENT: Final[Keys] = {
    "at": None,
    "cluster": "default",
    **no_default("operator", "submitted", "leader", "returns"),
    "unobserved": "0",
    **no_default("gone", "ended", "jobs", "rest", "contenders", "zxid_headroom", "checks", "blind", "running"),
}
EXPECTATION: Final[Keys] = no_default("at", "receiver", "alerts", "reason", "title")

AFTERWARDS: Final = 10 * MINUTE
"""A test without `until` goes on for this long after its last event or expectation."""
LONGEST: Final = 7 * DAY
_COMPONENTS: Final = {component.component.value: component for component in CLUSTER_COMPONENTS}
_RESERVED: Final = frozenset({"all", "jobs", *_COMPONENTS})
_JOB: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CLUSTER: Final = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9_./-]{0,252}")
_JOB_MANAGER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}(#[0-9]{1,3})?")

Who = ComponentId | str
"""A component of the cluster, or the name of a job."""


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

    at: int
    """Microseconds after the start of the test."""
    cluster: str
    submitted: tuple[str, ...] = ()
    leader: Mapping[Who, str] = {}
    """The JobManagers that are elected, each with a new leader session id."""
    returns: Mapping[Who, str] = {}
    """The JobManagers that publish themselves again, with their previous leader session ids."""
    unobserved: int = 0
    """Unobserved writes before those of `leader` and `returns`."""
    gone: tuple[Who, ...] = ()
    ended: tuple[str, ...] = ()
    jobs: Mapping[str, JobAct] = {}
    rest: Reach | None = None
    """How far requests to the leading REST server get from now on."""
    contenders: int | None = None
    zxid_headroom: int | None = None
    checks: Mapping[str, Verdict] = {}
    """The verdicts of checks of high availability from now on."""
    operator: OperatorAct | None = None
    blind: bool | None = None
    running: bool | None = None
    """Whether the sidecar itself runs, whatever the cluster."""

    @property
    def is_of_rest(self) -> bool:
        """Whether it says anything of Flink's REST server."""
        return bool(self.jobs or self.rest)


class NotificationInTest(Struct, frozen=True):
    """A notification that a test expects, or one that was sent in it. Expected: None is any value, and `title` a part of it."""

    at: int
    """Microseconds after the start of the test."""
    alerts: tuple[str, ...]
    receiver: str | None = None
    reason: Reason | None = None
    title: str | None = None


class RuleTest(Struct, frozen=True):
    """Events, and all expected notifications."""

    name: str
    location: str
    starts: int
    """Wall time: microseconds since the epoch."""
    until: int
    when: tuple[ScenarioEvent, ...]
    expect: tuple[NotificationInTest, ...]


class Suite(Struct, frozen=True):
    """Rules and their tests."""

    rules: Alerting
    tests: tuple[RuleTest, ...]


def read_tests(path: Path) -> Suite:
    """The tests in a file. Raises SettingsError."""
    file = read_file(path, TEST_FILE)
    rules = rules_in(file)
    tests = tuple(_test(section, rules) for section in unique_sections([file], "tests", TEST))
    if not tests:
        raise SettingsError(f"{file.location}: has no tests: list at least one under tests")
    return Suite(rules, tests)


def _test(section: Section, rules: Alerting) -> RuleTest:
    jobs: dict[str, set[str]] = {}
    when: list[ScenarioEvent] = []
    for part in section.sections("when", EVENT):
        when.append(_event(part, jobs))
        if when[-1].at < when[max(len(when) - 2, 0)].at:
            raise part.get("at").invalid("is before the event above it: list events in the order of time")
    if not when:
        raise section.missing("when")
    if "expect" not in section:
        raise SettingsError(f"{section.location}: expect is missing: give [] if no notification is expected")
    expect = tuple(_expectation(part, rules) for part in section.sections("expect", EXPECTATION))
    last = max([when[-1].at, *(part.at for part in expect)])
    return RuleTest(
        section.get("name").text,
        section.location,
        _instant(section.get("starts")),
        section.read("until", lambda setting: setting.duration(at_least=last, at_most=LONGEST), last + AFTERWARDS),
        tuple(when),
        expect,
    )


def _event(section: Section, jobs_of: dict[str, set[str]]) -> ScenarioEvent:
    cluster = section.get("cluster").matching(_CLUSTER, "the id of a cluster").strip("/")
    jobs = jobs_of.setdefault(cluster, set())
    submitted = tuple(map(_new_job, section.texts("submitted")))
    jobs |= {*submitted}
    event = ScenarioEvent(
        at=section.get("at").duration(at_most=LONGEST),
        cluster=cluster,
        submitted=submitted,
        leader=_leaders(section, "leader", jobs),
        returns=_leaders(section, "returns", jobs),
        unobserved=section.get("unobserved").integer(0, 1_000_000),
        gone=tuple(who for setting in section.texts("gone") for who in _who(setting, setting.text, jobs)),
        ended=tuple(_job(setting, setting.text, jobs) for setting in section.texts("ended")),
        jobs={_job(setting, name, jobs): setting.choice(JobAct) for name, setting in section.labels("jobs").items()},
        rest=section.read("rest", lambda setting: setting.choice(Reach), None),
        contenders=section.read("contenders", lambda setting: setting.integer(0, 1000), None),
        zxid_headroom=section.read("zxid_headroom", lambda setting: setting.integer(0, (1 << 32) - 1), None),
        checks={_check(setting, name): _verdict(setting) for name, setting in section.labels("checks").items()},
        operator=section.read("operator", lambda setting: setting.choice(OperatorAct), None),
        blind=section.read("blind", Setting.flag, None),
        running=section.read("running", Setting.flag, None),
    )
    jobs -= {*event.ended}
    return event


def _check(setting: Setting, name: str) -> str:
    if name not in CHECKS:
        raise setting.error(f"is about no check: {did_you_mean(CHECKS, name)}")
    return name


def _verdict(setting: Setting) -> Verdict:
    return Verdict(setting.one_of([verdict.lower() for verdict in Verdict], "verdicts").upper())


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
    return NotificationInTest(
        section.get("at").duration(at_most=LONGEST),
        alerts,
        section.read("receiver", lambda setting: setting.one_of(receiver_names, "receivers"), None),
        section.read("reason", lambda setting: setting.choice(Reason), None),
        section.read("title", lambda setting: setting.text, None),
    )


def _instant(setting: Setting) -> int:
    try:
        at = datetime.fromisoformat(setting.text)
    except ValueError:
        raise setting.invalid('is not a time: write it like "2026-01-05T12:00:00Z"') from None
    if at.tzinfo is None or not 1971 <= at.year <= 9000:
        raise setting.invalid('needs a UTC offset: write it like "2026-01-05T12:00:00Z"')
    return int(at.timestamp()) * 1_000_000
