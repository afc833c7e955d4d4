"""What the checks of high availability found: recorded when it changes, notified once for each risk, and never resolved by not knowing."""

from msgspec.structs import replace

from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.ha.results import CheckResult
from sidecar.core.moment import SECOND
from sidecar.core.observations import HaChecked
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from sidecar.core.records import HaCheck
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import POLICY, Sidecar, watching

RULE = Rule("Risk", Trigger.HA_RISK, Severity.INFO)
RISKS = replace(POLICY, rules=(RULE,), route=Route("ops", group_wait=1 * SECOND, group_interval=5 * SECOND))


def check(sidecar: Sidecar, **verdicts: CheckVerdict) -> None:
    """Each check finds this."""
    results = (
        CheckResult(
            check=name,
            verdict=verdict,
            text=f"facts of {name}",
            advice="mend it" if verdict is CheckVerdict.RISK else "",
        )
        for name, verdict in verdicts.items()
    )
    sidecar.observe(HaChecked(sidecar.moment, CLUSTER, tuple(results)))


def recorded(sidecar: Sidecar) -> list[tuple[str, str, str | None]]:
    """Check, verdict, and the verdict before."""
    return [
        (record.check_name, record.verdict, record.verdict_before)
        for record in sidecar.records
        if isinstance(record, HaCheck)
    ]


def alerted() -> Sidecar:
    """A sidecar that has notified one risk."""
    _, sidecar = watching(policy=RISKS)
    check(sidecar, standby=CheckVerdict.RISK, open_acls=CheckVerdict.PASS)
    sidecar.waits(3)
    assert reasons(sidecar) == ["FIRST"]
    return sidecar


def reasons(sidecar: Sidecar) -> list[str]:
    return [notification.reason for notification in sidecar.notifications() if notification.outcome == "queued"]


def test_the_first_results_and_each_change_are_recorded() -> None:
    """With the verdict before; the same result again is not."""
    _, sidecar = watching()
    check(sidecar, standby=CheckVerdict.RISK, open_acls=CheckVerdict.PASS)
    sidecar.waits(10)
    check(sidecar, standby=CheckVerdict.RISK, open_acls=CheckVerdict.UNKNOWN)
    assert recorded(sidecar) == [
        ("standby", "RISK", None),
        ("open_acls", "PASS", None),
        ("open_acls", "UNKNOWN", "PASS"),
    ]
    [first, *_] = [record for record in sidecar.records if isinstance(record, HaCheck)]
    assert (first.finding, first.advice, first.since) == ("facts of standby", "mend it", first.observed_at)


def test_what_does_not_change_is_recorded_once_a_day() -> None:
    """So that each day of the audit log says how it was."""
    _, sidecar = watching()
    for _ in range(50):
        check(sidecar, standby=CheckVerdict.RISK)
        sidecar.waits(3600, tick=600)
    checks = [record for record in sidecar.records if isinstance(record, HaCheck)]
    assert len(checks) == 3
    assert {record.since for record in checks} == {checks[0].observed_at}
    assert len({record.id for record in checks}) == 3


def test_each_risk_is_one_alert_that_says_what_to_do() -> None:
    """A second one later is notified too; the first one is not repeated for it."""
    sidecar = alerted()
    check(sidecar, standby=CheckVerdict.RISK, open_acls=CheckVerdict.RISK)
    sidecar.waits(10)
    assert reasons(sidecar) == ["FIRST", "GREW"]
    [group] = sidecar.state.alerts.groups.values()
    assert sorted(member.alert.labels["check"] for member in group.members.values()) == ["open_acls", "standby"]
    assert {member.alert.detail for member in group.members.values()} == {
        "facts of standby: mend it",
        "facts of open_acls: mend it",
    }


def test_what_cannot_be_read_any_more_does_not_resolve_a_risk() -> None:
    """Only a check that passes does, or one that does not apply any more."""
    sidecar = alerted()
    check(sidecar, standby=CheckVerdict.UNKNOWN, open_acls=CheckVerdict.PASS)
    sidecar.waits(20)
    assert reasons(sidecar) == ["FIRST"]
    check(sidecar, standby=CheckVerdict.PASS, open_acls=CheckVerdict.PASS)
    sidecar.waits(20)
    assert reasons(sidecar) == ["FIRST", "RESOLVED"]


def test_a_check_that_does_not_apply_any_more_resolves() -> None:
    """The cluster moved to the other store, say."""
    sidecar = alerted()
    check(sidecar, open_acls=CheckVerdict.PASS)
    sidecar.waits(20)
    assert reasons(sidecar) == ["FIRST", "RESOLVED"]


def test_a_restart_neither_resolves_nor_repeats_a_risk() -> None:
    """Nothing is known until the checks are made again."""
    sidecar = alerted()
    sidecar.is_killed(down_for=5).connects().waits(60)
    check(sidecar, standby=CheckVerdict.RISK)
    sidecar.waits(20)
    assert reasons(sidecar) == ["FIRST"]


def test_while_the_leaders_cannot_be_seen_no_risk_fires_or_resolves() -> None:
    """The page and the audit log have the results all the same."""
    sidecar = alerted()
    sidecar.is_cut_off().waits(30)
    check(sidecar, standby=CheckVerdict.PASS, open_acls=CheckVerdict.RISK)
    sidecar.waits(30)
    assert reasons(sidecar) == ["FIRST"]
    assert recorded(sidecar)[-1] == ("open_acls", "RISK", "PASS")


def test_every_sidecar_has_the_same_alert_for_a_risk() -> None:
    """Whenever each of them checked: one of them notifies for all."""
    ids = set[str]()
    for delay in (0, 1000):
        _, sidecar = watching(policy=RISKS)
        sidecar.waits(delay, tick=10)
        check(sidecar, standby=CheckVerdict.RISK)
        sidecar.waits(3)
        [group] = sidecar.state.alerts.groups.values()
        ids |= group.members.keys()
    assert len(ids) == 1


def test_checks_of_a_cluster_that_is_not_watched_are_dropped() -> None:
    """Removed while they were made."""
    _, sidecar = watching()
    sidecar.observe(HaChecked(sidecar.moment, "another", ()))
    assert "another" not in sidecar.state.clusters
