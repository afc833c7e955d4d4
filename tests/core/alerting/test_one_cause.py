"""A failover has one cause: message, page, explain, status and record say the same."""

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.outbox import Delivery
from sidecar.core.failover.causes import Cause
from sidecar.core.records import EpisodeRecord
from sidecar.core.views import episode_view
from sidecar.core.views.explain import facts, find
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import verdicts
from tests.kit.cluster import ALL_FOUR, DISPATCHER, THE_JOB, B
from tests.kit.core_sidecar import POLICY, Sidecar, watching
from tests.kit.fake_flink import Flink


def contends(flink: Flink, sidecar: Sidecar, number: int) -> None:
    for index in range(3):
        path = f"/leader/latch/_c_{index}-latch-{index:010d}"
        flink.znodes.delete(path) if index >= number else flink.znodes.write(path, b"", index)
    sidecar.reads_lists(["/leader/latch"])


def cause(sent: Delivery) -> str:
    return dict(sent.facts)["cause"].partition(" ")[0]


@pytest.mark.parametrize("apart", [0, 1.5])
def test_the_message_waits_for_the_verdict_that_is_recorded(apart: float) -> None:
    """The store was away, and one contender less is left: which of both it was is not known. No earlier verdict is sent."""
    flink, sidecar = watching()
    contends(flink, sidecar, 2)
    sidecar.is_cut_off().waits(5)
    flink.vacate().elect(B, *[component for component in ALL_FOUR if component != THE_JOB])
    sidecar.connects()
    contends(flink, sidecar, 1)
    sidecar.waits(apart).sees(flink.elect(B, THE_JOB)).waits(60)
    (recorded,) = [record for record in sidecar.records if isinstance(record, EpisodeRecord)]
    (sent,) = sidecar.sent
    assert cause(sent) == recorded.cause == Cause.UNKNOWN
    assert [line for line in sent.body.split("\n") if line in recorded.facts] == recorded.facts


def test_after_an_outage_the_cause_stays_when_a_contender_goes() -> None:
    """25 s without the store, another leader, a component 3.5 s after the others, the latch of the previous one 3 s after that: message,
    record and count have one cause.
    """
    flink, sidecar = watching()
    contends(flink, sidecar, 2)
    sidecar.is_cut_off().waits(25)
    flink.vacate()
    late = ALL_FOUR[0]
    flink.elect(B, *[component for component in ALL_FOUR if component != late])
    sidecar.connects().waits(3.5).sees(flink.elect(B, late)).waits(3)
    contends(flink, sidecar, 1)
    sidecar.waits(60)
    (recorded,) = [record for record in sidecar.records if isinstance(record, EpisodeRecord)]
    (sent,) = sidecar.sent
    assert cause(sent) == recorded.cause == Cause.STORE_OUTAGE


def test_a_verdict_that_changes_after_the_message_is_corrected_once_when_the_failover_is_over() -> None:
    """While a job has no leader the cause is what is known then; the message that it is over has the recorded one."""
    flink, sidecar = watching(policy=replace(POLICY, rules=POLICY.rules[:1]))
    contends(flink, sidecar, 2)
    sidecar.is_cut_off().waits(5)
    flink.vacate()
    sidecar.connects()
    sidecar.sees(flink.elect(B, *[component for component in ALL_FOUR if component != THE_JOB])).waits(30)
    contends(flink, sidecar, 1)
    sidecar.sees(flink.elect(B, THE_JOB)).waits(600)
    (recorded,) = [record for record in sidecar.records if isinstance(record, EpisodeRecord)]
    assert [cause(delivery) for delivery in sidecar.sent] == [Cause.STORE_OUTAGE, recorded.cause]
    assert recorded.cause == Cause.UNKNOWN


def test_while_it_is_in_progress_page_message_and_explain_say_the_same() -> None:
    """Each with the facts of that moment: the cause so far, and the status of the cluster, which says what stands still."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(36)
    (sent,) = sidecar.sent
    snapshot = Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy)
    [view] = episode_view.open_episodes(snapshot)
    assert cause(sent) == view.cause == Cause.JOBMANAGER_LOST
    explained = dict(facts(find(sidecar.records, view.id, snapshot)))
    assert explained["cause"] == ["jobmanager_lost (medium), as far as is known now", *view.facts]
    [said] = verdicts(snapshot)
    what, since = said.sentence.split(", ", 1)[1], said.status_since
    assert explained["status"][0].startswith(f"DOWN since {since}: no leader")
    assert explained["status"][0].partition(" (as of ")[0].endswith(what)
    assert explained["status"][1:] == [f"Next: {said.next_step}"]
    sidecar.sees(flink.elect(B, DISPATCHER))
    snapshot = Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy)
    assert dict(facts(find(sidecar.records, view.id, snapshot)))["leader"] == ["jm-a:6123 → jm-b:6123"]


def test_a_message_waits_for_jobs_that_get_their_leader_just_then() -> None:
    """Two seconds at most: what it says of the jobs is so when it is sent."""
    for late, led in ((5.5, "1 of 1 jobs led"), (9, "1 of 1 jobs without leader")):
        flink, sidecar = watching(policy=replace(POLICY, rules=POLICY.rules[:1]))
        sidecar.sees(flink.vacate()).waits(1)
        sidecar.sees(flink.elect(B, *[component for component in ALL_FOUR if component != THE_JOB])).waits(late)
        sidecar.sees(flink.elect(B, THE_JOB)).waits(20)
        assert sidecar.sent[0].body.split("\n")[0].endswith(led)


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (0, "No JobManager contends: start one."),
        (1, "1 JobManager contends: if none leads within a minute, restart one."),
        (2, "2 JobManagers contend: if none leads within a minute, restart one."),
    ],
)
def test_while_there_is_no_leader_the_first_line_says_what_to_do(number: int, step: str) -> None:
    """On the page and in the message, before anybody asks why."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate())
    contends(flink, sidecar, 2)
    contends(flink, sidecar, number)
    sidecar.waits(36)
    (sent,) = sidecar.sent
    assert sent.body.split("\n")[1].startswith(f"Next: {step}")
    (verdict,) = verdicts(Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy))
    assert f"Next: {verdict.next_step}" == sent.body.split("\n")[1]
    sidecar.sees(flink.elect(B)).waits(120)
    assert all("Next: " not in delivery.body for delivery in sidecar.sent[1:])
