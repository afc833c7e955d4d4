"""The last message about a failover says how it ended, and its incident is not closed before."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sidecar.core.alerting import grouping
from sidecar.core.alerting.alerts import Member
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Destination
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from tests.core import triggers
from tests.core.auditor import PAGER
from tests.core.cluster.pictures import ASSESSING, after, before, job, shows
from tests.core.failover.test_assessment import looks
from tests.core.triggers import SCENES
from tests.kit.core_sidecar import Sidecar, fail_over, watching, with_destinations
from tests.kit.fake_flink import Flink
from tests.simulation.test_rule_test import SHIPPED

INTERVAL = 60
MAIL = Destination("ops", 0)
RESTARTING = job(started=2, state="RESTARTING")
Sent = list[tuple[float, Delivery]]


def with_shipped_rules(too_many: int = 3) -> tuple[Flink, Sidecar]:
    """A leads, and its jobs run. So many failovers within an hour are too many."""
    rules = (replace(rule, count=too_many) if rule.on is Trigger.EPISODES else rule for rule in SHIPPED.rules.rules)
    shipped = replace(
        with_destinations(PAGER, policy=ASSESSING),
        rules=tuple(rules),
        route=Route("ops", group_wait=5 * SECOND, group_interval=INTERVAL * SECOND),
    )
    return watching(policy=shipped)


def messages_of(led_after: float, running_after: int, too_many: int = 3) -> tuple[Sent, float]:
    """The messages by the shipped rules, with seconds since the loss, and when the jobs ran again. A leads; later B; then its jobs run."""
    flink, sidecar = with_shipped_rules(too_many)
    for _ in range(12):
        shows(sidecar, before(sidecar))
        sidecar.waits(1)
    lost, messages = sidecar.now, _noted(sidecar)
    fail_over(flink, sidecar, led_after)
    looks(sidecar, RESTARTING, seconds=running_after)
    ran = sidecar.now
    looks(sidecar, None, seconds=900)
    return [((at - lost) / SECOND, message) for at, message in messages], (ran - lost) / SECOND


def _noted(sidecar: Sidecar) -> list[tuple[int, Delivery]]:
    noted: list[tuple[int, Delivery]] = []
    send: Callable[[Delivery], None] = sidecar._send

    def note(delivery: Delivery) -> None:
        noted.append((sidecar.now, delivery))
        send(delivery)

    sidecar._send = note  # type: ignore[method-assign]  # what is sent, with its time
    return noted


def test_what_waits_for_its_cluster_waits_after_a_restart_as_before() -> None:
    """It is not due again."""
    flink, sidecar = with_shipped_rules()
    shows(sidecar, before(sidecar))
    fail_over(flink, sidecar, 1)
    looks(sidecar, RESTARTING, seconds=30)
    groups = sidecar.state.alerts.groups
    assert [(group.flush_at, len(group.members)) for group in groups.values()] == [(None, 3)]
    sidecar.is_killed(down_for=5)
    assert sidecar.state.alerts.groups == groups


@pytest.mark.parametrize(("led_after", "running_after"), [(8, 10), (8, 90), (40, 10), (40, 90)])
def test_the_last_message_is_that_all_jobs_run(led_after: float, running_after: int) -> None:
    """Within an interval of the group, and a check of the recovery."""
    messages, ran = messages_of(led_after, running_after)
    at, last = messages[-1]
    assert last.status == "OK", [(at, message.reason.value, message.title) for at, message in messages]
    assert at <= ran + INTERVAL + 15


@pytest.mark.parametrize(("led_after", "running_after"), [(8, 10), (8, 90), (40, 10), (40, 90)])
def test_that_all_jobs_run_is_said_while_too_many_failovers_are(led_after: float, running_after: int) -> None:
    """Once, and soon; the end of the flapping, an hour later, is not its business."""
    messages, ran = messages_of(led_after, running_after, too_many=1)
    status = [message.status for _, message in messages]
    assert status.count("OK") == 1, [(at, message.reason.value, message.title) for at, message in messages]
    assert messages[status.index("OK")][0] <= ran + INTERVAL + 15
    assert {message.goes_on for _, message in messages} == {True}


@pytest.mark.parametrize(("led_after", "running_after"), [(8, 10), (8, 90), (40, 90)])
def test_nothing_is_resolved_while_a_job_does_not_run(led_after: float, running_after: int) -> None:
    """And no message says of a later time what was so before."""
    messages, ran = messages_of(led_after, running_after)
    assert [
        message.title for _, message in messages if message.reason.value == "RESOLVED" and message.status != "OK"
    ] == []
    assert [message.title for at, message in messages if at > ran + 15 and message.status == "RECOVERING"] == []


@pytest.mark.parametrize(("to", "reasons"), [(MAIL, ["FIRST"]), (PAGER, ["FIRST", "RESOLVED"])])
def test_a_cluster_that_stays_degraded_is_said_to_be_once(to: Destination, reasons: list[str]) -> None:
    """After a minute its incident is closed, which is sent only where it is kept open."""
    scene = SCENES[Trigger.RESTORED_FROM_OLDER]
    flink, sidecar = triggers.watching(scene.rule)
    sidecar.policy = with_destinations(to, policy=sidecar.policy)
    scene.begins(flink, sidecar)
    for _ in range(100):
        shows(sidecar, after(sidecar, 40, 42))
        sidecar.waits(1)
    assert [(message.status, message.reason.value) for message in sidecar.sent] == [("DEGRADED", it) for it in reasons]


def test_what_fires_again_before_its_incident_has_ended_is_new() -> None:
    """An alert of the same id: a vacancy of a term that was handed over, whose begin is not known."""
    flink, sidecar = watching(policy=with_destinations(MAIL, policy=ASSESSING))
    shows(sidecar, before(sidecar))
    sidecar.waits(1)
    fail_over(flink, sidecar, 1)
    looks(sidecar, RESTARTING, seconds=60)
    [group] = sidecar.state.alerts.groups.values()
    waiting = next(iter(group.members.values()))
    assert (waiting.notified, waiting.closes) == (True, True)
    again = replace(waiting.alert, ended=None)
    alerts = grouping.fire(sidecar.state.alerts, sidecar.policy, again, sidecar.moment)
    [group] = alerts.groups.values()
    assert group.members[again.id] == Member(again)


@pytest.mark.parametrize(("is_answered", "end"), [(True, "OK"), (False, "UNCHECKED")])
def test_after_blindness_the_end_waits_until_the_rest_server_has_had_time_to_answer(
    is_answered: bool, end: str
) -> None:
    """Nothing would follow a message that whether jobs run is not known: it ends the incident."""
    flink, sidecar = with_shipped_rules()
    for _ in range(12):
        shows(sidecar, before(sidecar))
        sidecar.waits(1)
    messages = _noted(sidecar)
    fail_over(flink, sidecar, 1)
    looks(sidecar, None, seconds=2)
    sidecar.rest_answers = False
    sidecar.is_cut_off().waits(30).connects().waits(3)
    looks(sidecar, *[None] * is_answered, seconds=300 if is_answered else 0)
    sidecar.waits(300)
    assert [message.title.partition("]")[0] for _, message in messages] == ["[BLIND", f"[{end}"]
