"""The outbox: each row is delivered once, or as often as it takes, and its story is recorded."""

from itertools import pairwise

from msgspec.structs import replace

from sidecar.core.alerting.outbox import CAPACITY, Stage, queue
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome, DeliverySettled
from sidecar.core.policy.policy import Destination
from tests.kit.cluster import DISPATCHER, REST_SERVER, A, B, job_manager
from tests.kit.core_sidecar import BY_ALERT, LEADER_CHANGED, NO_LEADER, OPS, Sidecar, watching, with_destinations
from tests.kit.fake_flink import Flink

ONCALL = Destination("oncall", 0)
TWO = with_destinations(OPS, ONCALL)


def fails_over(flink: Flink, sidecar: Sidecar, leader_host: str) -> None:
    """One more leader, and time enough for it to be sent."""
    sidecar.sees(flink.elect(job_manager(leader_host), DISPATCHER)).waits(70)


def test_a_delivery_is_recorded_before_it_is_handed_out() -> None:
    """Queued, claimed and in the state, and only then sent."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = None
    fails_over(flink, sidecar, "jm-b")
    (sent,) = sidecar.sent
    assert sidecar.state.outbox[sent.id] == sent
    assert (sent.stage, sent.attempt) == (Stage.SENDING, 1)
    assert [n.outcome for n in sidecar.notifications()] == ["queued"]


def test_a_delivery_that_fails_is_tried_again_ever_more_slowly() -> None:
    """2 s, 4 s, 8 s … up to ten minutes, each within a fifth; and given up, on the record, after a day."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    tried: list[int] = []
    sidecar.sees(flink.elect(B))
    for _ in range(25 * 3600 * 2):
        before = len(sidecar.sent)
        sidecar.waits(0.5, tick=0.5)
        tried += [sidecar.now] * (len(sidecar.sent) - before)
    waits = [(later - earlier) / SECOND for earlier, later in pairwise(tried)]
    expected = [min(2.0 * 2**n, 600.0) for n in range(len(waits))]
    assert all(0.8 * due <= waited <= 1.2 * due + 0.5 for waited, due in zip(waits, expected, strict=True))
    assert 24 * 3600 <= (tried[-1] - tried[0]) / SECOND <= 24 * 3600 + 720
    assert sidecar.state.outbox == {}
    outcomes = [n.outcome for n in sidecar.notifications()]
    assert outcomes == ["queued", *["failed"] * (len(tried) - 1), "gave_up"]
    assert [n.attempt for n in sidecar.notifications()] == list(range(len(tried) + 1))
    assert not any(delivery.possible_duplicate for delivery in sidecar.sent)


def test_two_rows_do_not_come_back_at_the_same_instant() -> None:
    """What failed together is not tried again together."""
    flink, sidecar = watching(policy=TWO)
    sidecar.answers = {"ops#0": DeliveryOutcome.FAILED, "oncall#0": DeliveryOutcome.FAILED}
    sidecar.sees(flink.elect(B)).waits(5.1)
    assert len({delivery.next_at for delivery in sidecar.state.outbox.values()}) == 2


def test_where_nothing_can_be_sent_is_not_tried_again() -> None:
    """UNDELIVERABLE: given up at once, with what was said."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.UNDELIVERABLE
    fails_over(flink, sidecar, "jm-b")
    assert [n.outcome for n in sidecar.notifications()] == ["queued", "gave_up"]
    assert sidecar.state.outbox == {}


def test_an_attempt_that_was_cut_off_makes_the_next_one_a_possible_duplicate() -> None:
    """It may have arrived: said in the record, and to be said in the message."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.TIMED_OUT
    sidecar.sees(flink.elect(B)).waits(6)
    sidecar.answers["ops#0"] = DeliveryOutcome.DELIVERED
    sidecar.waits(10)
    assert [(n.outcome, n.possible_duplicate) for n in sidecar.notifications()] == [
        ("queued", False),
        ("timed_out", False),
        ("delivered", True),
    ]


def test_a_kill_while_sending_leaves_a_claim_that_comes_back_as_a_possible_duplicate() -> None:
    """Nobody knows whether it arrived: the new process sends it again and says so; the one that only waited is no duplicate."""
    flink, sidecar = watching(policy=TWO)
    sidecar.answers = {"ops#0": None, "oncall#0": DeliveryOutcome.FAILED}
    sidecar.sees(flink.elect(B)).waits(5.1)
    sidecar.answers = {}
    sidecar.is_killed(down_for=5).waits(1)
    again = {d.destination: (d.attempt, d.possible_duplicate) for d in sidecar.sent[2:]}
    assert again == {"ops#0": (2, True), "oncall#0": (2, False)}
    assert sidecar.state.outbox == {}


def test_a_sender_that_never_answers_loses_its_claim() -> None:
    """After five minutes, far beyond a sender's own limit, the row goes out again, as a possible duplicate."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = None
    sidecar.sees(flink.elect(B)).waits(290)
    assert len(sidecar.sent) == 1
    sidecar.waits(20)
    assert [(d.attempt, d.possible_duplicate) for d in sidecar.sent] == [(1, False), (2, True)]


def test_a_backlog_of_one_destination_does_not_delay_another() -> None:
    """One never answers: it has one delivery under way and the rest waits; the other one gets everything, in order, at once."""
    flink, sidecar = watching(policy=TWO)
    sidecar.answers["ops#0"] = None
    for host in ("jm-b", "jm-c", "jm-d"):
        fails_over(flink, sidecar, host)
    assert [d.destination for d in sidecar.sent].count("ops#0") == 1
    titles = [
        d.title.removeprefix("[UNCHECKED] default: ").partition(" ")[0]
        for d in sidecar.sent
        if d.destination == "oncall#0"
    ]
    assert titles == ["jm-b", "jm-c", "jm-d"]


def test_one_destination_gets_one_thing_at_a_time() -> None:
    """Two groups are due in the same instant: the second goes out when the first is settled."""
    soon = replace(NO_LEADER, hold_for=0)
    flink, sidecar = watching(policy=replace(BY_ALERT, rules=(LEADER_CHANGED, soon)))
    sidecar.answers["ops#0"] = None
    sidecar.sees(flink.vacate(REST_SERVER).elect(B, DISPATCHER)).waits(60)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]
    sidecar.observe(DeliverySettled(sidecar.moment, sidecar.sent[0].id, DeliveryOutcome.DELIVERED))
    sidecar.waits(0.25)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST"), ("FlinkNoLeader", "FIRST")]


def test_an_answer_after_the_claim_was_given_up_changes_nothing() -> None:
    """The row waits for its next attempt already: that one counts."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    sidecar.sees(flink.elect(B)).waits(5.25)
    before, records = sidecar.state.outbox, len(sidecar.records)
    sidecar.observe(DeliverySettled(sidecar.moment, sidecar.sent[0].id, DeliveryOutcome.DELIVERED))
    assert sidecar.state.outbox == before != {}
    assert len(sidecar.records) == records


def test_an_all_clear_never_overtakes_its_alarm() -> None:
    """The alarm failed and waits for its next attempt: the all-clear of the same group waits behind it."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    sidecar.sees(flink.vacate(DISPATCHER)).waits(110)
    sidecar.answers["ops#0"] = DeliveryOutcome.DELIVERED
    sidecar.sees(flink.elect(A, DISPATCHER)).waits(10)
    assert sidecar.sent_reasons()[-1] == ("FlinkNoLeader", "FIRST")
    sidecar.waits(100)
    assert [n.reason for n in sidecar.notifications() if n.outcome == "delivered"] == ["FIRST", "RESOLVED"]


def test_each_record_names_the_service_of_its_destination() -> None:
    """From queued to delivered; null if the configuration does not know it."""
    flink, sidecar = watching(policy=with_destinations(replace(OPS, service="slack"), Destination("ops", 1)))
    fails_over(flink, sidecar, "jm-b")
    assert {(n.destination, n.outcome, n.service) for n in sidecar.notifications()} == {
        (name, outcome, service)
        for name, service in (("ops#0", "slack"), ("ops#1", None))
        for outcome in ("queued", "delivered")
    }


def test_a_group_that_waits_does_not_hold_up_another_group() -> None:
    """A message that a receiver refuses again and again must not silence all others to it."""
    flink, sidecar = watching(policy=BY_ALERT)
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    sidecar.sees(flink.vacate(DISPATCHER)).waits(300)
    sidecar.answers["ops#0"] = DeliveryOutcome.DELIVERED
    before = len(sidecar.sent)
    sidecar.sees(flink.elect(B, REST_SERVER)).waits(5.1)
    assert [d.alert for d in sidecar.sent[before:]] == ["FlinkLeaderChanged"]


def test_the_outbox_is_bounded() -> None:
    """A destination that is away for long loses its oldest rows, on the record; the one under way stays."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = None
    fails_over(flink, sidecar, "jm-b")
    (under_way,) = sidecar.state.outbox.values()
    rows = [replace(under_way, id=f"row {n}", stage=Stage.WAITING, attempt=0) for n in range(CAPACITY + 2)]
    outbox, given_up = queue(sidecar.state.outbox, rows)
    assert len(outbox) == CAPACITY + 1
    assert [(s.delivery.id, s.outcome, s.detail) for s in given_up] == [
        (f"row {n}", "gave_up", "the outbox is full") for n in range(2)
    ]
    assert under_way.id in outbox
    elsewhere = replace(rows[0], id="elsewhere", destination="oncall#0")
    assert queue(outbox, [elsewhere])[1] == []


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    """A sender that answers twice, or of a row that is long gone."""
    flink, sidecar = watching()
    fails_over(flink, sidecar, "jm-b")
    before, records = sidecar.state, len(sidecar.records)
    sidecar.observe(DeliverySettled(sidecar.moment, sidecar.sent[0].id, DeliveryOutcome.FAILED))
    assert sidecar.state.outbox == before.outbox == {}
    assert len(sidecar.records) == records


def test_what_was_said_at_the_attempt_is_on_the_record() -> None:
    """One line for people, as the sender gave it."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = None
    fails_over(flink, sidecar, "jm-b")
    sidecar.observe(DeliverySettled(sidecar.moment, sidecar.sent[0].id, DeliveryOutcome.FAILED, "answered 503"))
    assert [(n.outcome, n.detail) for n in sidecar.notifications()] == [("queued", None), ("failed", "answered 503")]
