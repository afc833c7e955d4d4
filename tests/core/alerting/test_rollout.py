"""A sidecar that starts in the middle of a vacancy, as in each new pod of a rollout, knows no leader before: people hear of it once."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.claims import (
    ClaimStanding,
    claimed,
    marked,
    may_have_arrived,
    oldest_news,
    repeats,
    standing,
)
from sidecar.core.alerting.ledger_document import Claim, Ledger
from sidecar.core.alerting.outbox import Delivery, Part
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome, DeliverySettled, Ticked
from tests.core.alerting.test_ledger_document import NOW, delivery_of
from tests.kit.cluster import START, A, B
from tests.kit.core_sidecar import LEADER_CHANGED, NO_LEADER, POLICY, Sidecar
from tests.kit.fake_flink import Flink

BEFORE = Part("vacancy of a's term", NOW, subjects=("dispatcher",))
"""As one sees it that knew the leader before."""
STARTED = Part("vacancy of nobody's term", NOW + 10 * SECOND, subjects=("dispatcher",), certain=False)
"""As one sees it that has started since."""
JOB = replace(STARTED, alert_id="vacancy of a job", subjects=("job", "jobs"))


class Shared:
    """The ledger of several sidecars, and what people got: when, from whom, why, and whether it was labelled."""

    def __init__(self) -> None:
        self.ledger = Ledger(began=1)
        self.arrived: list[tuple[str, Reason, bool]] = []


class Member(Sidecar):
    """A sidecar that asks the ledger before it sends."""

    def __init__(self, flink: Flink, name: str, shared: Shared, now: int) -> None:
        self.name, self.shared = name, shared
        super().__init__(flink, replace(POLICY, observer=name, rules=(LEADER_CHANGED, NO_LEADER)))
        self.now = now

    def _send(self, delivery: Delivery) -> None:
        self.sent.append(delivery)
        ledger = self.shared.ledger
        if standing(ledger, delivery, self.name) is ClaimStanding.TOLD:
            self._step(DeliverySettled(self.moment, delivery.id, DeliveryOutcome.ALREADY_TOLD))
            return
        labelled = may_have_arrived(ledger, delivery) or repeats(ledger, delivery)
        labelled = labelled or oldest_news(ledger, delivery) < ledger.began
        if "NoLeader" in delivery.alert:
            self.shared.arrived.append((self.name, delivery.reason, labelled))
        ledger = claimed(ledger, delivery, Claim(self.name, delivery.id), self.now)
        self.shared.ledger = marked(ledger, delivery, self.name, self.now)
        self._step(DeliverySettled(self.moment, delivery.id, DeliveryOutcome.DELIVERED, possible_duplicate=labelled))


def rollout(*, started: float, stopped: float) -> list[tuple[str, Reason, bool]]:
    """What people get when all leaders are gone from second 100 to 200, one sidecar starts, and the one that was there before stops."""
    shared = Shared()
    flink = Flink().submit().elect(A)
    members = [Member(flink, "old", shared, START)]
    members[0].connects()
    happens: dict[float, Callable[[], object]] = {100.0: flink.vacate, 200.0: lambda: flink.elect(B)}
    for second in (number / 2 for number in range(600)):
        if second in happens:
            happens[second]()
        changed = list(flink.znodes.changed)
        if second == started:
            members.append(Member(flink, "new", shared, START + round(second * SECOND)))
            members[-1].connects()
        members = [member for member in members if member.name != "old" or second < stopped]
        for member in members:
            flink.znodes.changed[:] = changed
            member.now = max(member.now, START + round(second * SECOND))
            member.sees_changes()
            member.take(Ticked)
        flink.znodes.changed.clear()
    return shared.arrived


@pytest.mark.parametrize("started", [50.0, 99.5, 100.0, 103.0, 120.0, 134.0, 140.0])
@pytest.mark.parametrize("stopped", [100.0, 104.0, 133.0, 140.0, 1000.0])
def test_a_rollout_notifies_once_of_one_vacancy(started: float, stopped: float) -> None:
    """Whichever of them is there when it is due: one alarm, one all-clear, and no label."""
    assert [(reason, labelled) for _, reason, labelled in rollout(started=started, stopped=stopped)] == [
        (Reason.FIRST, False),
        (Reason.RESOLVED, False),
    ]


def ledger_of(*parts: Part) -> Ledger:
    """A ledger in which these were notified, half a minute later."""
    return marked(Ledger(), delivery_of(*parts), "sidecar-a", NOW + 35 * SECOND)


def test_jobs_that_one_sees_each_for_itself_are_those_of_the_failover() -> None:
    """Who saw it begin notifies of the jobs of a failover as one thing; who did not, of each job."""
    ledger = ledger_of(BEFORE, replace(BEFORE, alert_id="jobs of it", subjects=("jobs",)))
    assert standing(ledger, delivery_of(STARTED, JOB), "sidecar-b") is ClaimStanding.TOLD
    assert standing(ledger_of(BEFORE), delivery_of(STARTED, JOB), "sidecar-b") is ClaimStanding.FREE
    assert repeats(ledger_of(BEFORE), delivery_of(STARTED, JOB))


def test_its_end_is_notified_once() -> None:
    """Whoever of them is first."""
    over, started_over = (replace(part, ended=NOW + 60 * SECOND) for part in (BEFORE, STARTED))
    for first, second in ((over, started_over), (started_over, over)):
        ledger = marked(ledger_of(BEFORE), delivery_of(first, reason=Reason.RESOLVED), "sidecar-a", NOW + 70 * SECOND)
        assert standing(ledger, delivery_of(second, reason=Reason.RESOLVED), "sidecar-b") is ClaimStanding.TOLD


def test_the_next_vacancy_is_another_one() -> None:
    """For those who know the leader before, whatever was notified; for others, when the last one is over."""
    following = replace(BEFORE, alert_id="vacancy of b's term", began=NOW + 300 * SECOND)
    started = replace(STARTED, began=NOW + 310 * SECOND)
    assert standing(ledger_of(BEFORE), delivery_of(following), "sidecar-b") is ClaimStanding.FREE
    assert not repeats(ledger_of(BEFORE), delivery_of(following))
    over = marked(
        ledger_of(BEFORE),
        delivery_of(replace(BEFORE, ended=NOW + 60 * SECOND), reason=Reason.RESOLVED),
        "sidecar-a",
        NOW,
    )
    assert standing(over, delivery_of(started), "sidecar-b") is ClaimStanding.FREE
    again = marked(over, delivery_of(following), "sidecar-a", NOW + 335 * SECOND)
    assert standing(again, delivery_of(started), "sidecar-b") is ClaimStanding.TOLD


def test_who_knows_more_sends_it_and_says_so() -> None:
    """The one that started was first: what the other says may be the same."""
    assert standing(ledger_of(STARTED), delivery_of(BEFORE), "sidecar-b") is ClaimStanding.FREE
    assert repeats(ledger_of(STARTED), delivery_of(BEFORE))


def test_where_nobody_hears_of_an_end_it_is_notified_again_and_labelled() -> None:
    """The vacancy that was notified may have been over for hours: a duplicate is better than silence."""
    started = replace(delivery_of(STARTED), send_resolved=False)
    assert standing(ledger_of(BEFORE), started, "sidecar-b") is ClaimStanding.FREE
    assert repeats(ledger_of(BEFORE), started)
    assert (
        standing(ledger_of(BEFORE), replace(delivery_of(BEFORE), send_resolved=False), "sidecar-b")
        is ClaimStanding.TOLD
    )
