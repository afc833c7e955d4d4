"""What an Alertmanager gets: single alerts with the same labels from every observer, again while they fire, and their end."""

from collections import Counter

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.new_deliveries import FIRES_FOR
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.message import FeedAlert
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Destination, Feed, Policy, Rule
from sidecar.core.policy.routing import Route, TimeInterval, TimeRange, with_feeds
from sidecar.core.policy.triggers import Trigger
from tests.kit.alertmanager_model import AlertmanagerModel
from tests.kit.cluster import CLUSTER, DISPATCHER, THE_JOB, A, B, job_manager
from tests.kit.core_sidecar import LEADER_CHANGED, NO_LEADER, POLICY, Sidecar, fail_over, watching
from tests.kit.fake_flink import Flink

EVENT_DURATION = 600 * SECOND
AM = Destination("am", 0, feed=Feed(EVENT_DURATION))
OTHER_AM = replace(AM, index=1)
TO_AM = Route("am")
BLIND = Rule("FlinkBlind", Trigger.BLIND, hold_for=20 * SECOND)


def feeding(*destinations: Destination, route: Route = TO_AM, policy: Policy = POLICY) -> Policy:
    """`policy` with an Alertmanager as its only receiver."""
    return replace(policy, route=with_feeds(route, {"am"}), receivers={"am": destinations or (AM,)})


def sent(sidecar: Sidecar, *reasons: Reason) -> list[Delivery]:
    return [delivery for delivery in sidecar.sent if not reasons or delivery.reason in reasons]


def fed(sidecar: Sidecar, *reasons: Reason) -> list[FeedAlert]:
    return [alert for delivery in sent(sidecar, *reasons) for alert in delivery.feed]


def vacant(policy: Policy | None = None) -> tuple[Flink, Sidecar]:
    """A cluster whose dispatcher has been without a leader until FlinkNoLeader was sent."""
    flink, sidecar = watching(policy=policy or feeding())
    sidecar.sees(flink.vacate(DISPATCHER)).waits(36)
    assert [delivery.reason for delivery in sidecar.sent] == [Reason.FIRST]
    return flink, sidecar


def test_a_failover_is_one_request_with_an_alert_for_each_component() -> None:
    """To every Alertmanager, outside of the ledger: all observers send it, and it makes one alert of them."""
    flink, sidecar = watching(policy=feeding(AM, OTHER_AM))
    fail_over(flink, sidecar).waits(30)
    assert Counter(d.destination for d in sent(sidecar, Reason.FIRST)) == {"am#0": 1, "am#1": 1}
    assert not any(delivery.parts for delivery in sidecar.sent)
    first = sent(sidecar, Reason.FIRST)[0].feed
    assert {frozenset(alert.labels) for alert in first} == {
        frozenset({"alertname", "cluster_id", "component", "severity", "store"})
    }
    assert {alert.labels["alertname"] for alert in first} == {"FlinkLeaderChanged"}
    assert {alert.labels["component"] for alert in first} == {"dispatcher", "resource_manager", "rest_server"}
    assert all("jm-a" in alert.annotations["description"] for alert in first)


def test_an_event_fires_long_enough_for_an_alertmanager_that_waits() -> None:
    """It is over at once. An alert that has ended before the Alertmanager's own `group_wait` is never notified."""
    flink, sidecar = watching(policy=feeding())
    fail_over(flink, sidecar).waits(600)
    assert {(alert.fires_for, alert.ended) for alert in fed(sidecar)} == {(EVENT_DURATION, 0)}


def test_what_fires_is_sent_again_each_minute_and_then_its_end() -> None:
    """The journal and the records have what changed; nothing is written about what was sent again and arrived."""
    flink, sidecar = vacant()
    sidecar.waits(600)
    again = sent(sidecar, Reason.RESEND)
    assert len(again) == 10
    assert {alert.fires_for for delivery in again for alert in delivery.feed} == {FIRES_FOR}
    assert all(delivery.feed == again[0].feed for delivery in again)
    assert [record.outcome for record in sidecar.notifications()] == ["queued", "delivered"]
    sidecar.sees(flink.elect(B, DISPATCHER)).waits(10)
    over = sidecar.sent[-1]
    assert over.reason is Reason.RESOLVED
    [end] = [alert for alert in over.feed if alert.labels["alertname"] == "FlinkNoLeader"]
    assert (end.fires_for, end.labels) == (0, again[0].feed[0].labels)
    assert end.ended > end.began
    before = len(sidecar.sent)
    sidecar.waits(600)
    assert len(sidecar.sent) == before
    assert sidecar.state.alerts.groups == {}


def test_three_observers_give_an_alert_the_same_labels() -> None:
    """Also one that came later, and does not know when the vacancy began or who led before. What differs is an annotation."""
    flink, first = vacant()
    late = Sidecar(flink, replace(feeding(), observer="sidecar-1"))
    late.now = first.now
    late.connects().waits(40)
    ours, theirs = fed(first, Reason.FIRST), fed(late, Reason.FIRST)
    assert [alert.labels for alert in ours] == [alert.labels for alert in theirs]
    assert ours[0].began < theirs[0].began
    assert [alert.annotations["observer"] for alert in (*ours, *theirs)] == ["sidecar-0", "sidecar-1"]


def test_only_what_an_observer_says_of_itself_names_it() -> None:
    """Two blind observers are two alerts."""
    _, sidecar = watching(policy=feeding(policy=replace(POLICY, rules=(BLIND,), external_labels={"env": "prod"})))
    sidecar.is_cut_off().waits(60)
    [alert] = fed(sidecar, Reason.FIRST)
    assert alert.labels["observer"] == "sidecar-0"
    assert alert.labels["env"] == "prod"


def test_out_of_sight_an_alert_is_only_kept_from_ending() -> None:
    """It is not said again that there is no leader: whoever can see it may have resolved it. What it says of itself is certain."""
    flink, sidecar = watching(policy=feeding(policy=replace(POLICY, rules=(LEADER_CHANGED, NO_LEADER, BLIND))))
    sidecar.sees(flink.vacate(DISPATCHER)).waits(60).is_cut_off().waits(120)
    last = sent(sidecar, Reason.RESEND)[-1].feed
    assert {alert.labels["alertname"]: alert.seen for alert in last} == {"FlinkNoLeader": False, "FlinkBlind": True}
    sidecar.connects().waits(70)
    last = sent(sidecar, Reason.RESEND)[-1].feed
    assert [(alert.labels["alertname"], alert.seen) for alert in last] == [("FlinkNoLeader", True)]


def test_a_new_process_goes_on_at_once() -> None:
    """From the journal, before it has read the store; what ended meanwhile is ended when it has."""
    flink, sidecar = vacant()
    sidecar.is_killed(down_for=90).waits(1)
    assert [(a.labels["alertname"], a.seen) for a in sidecar.sent[-1].feed] == [("FlinkNoLeader", False)]
    flink.elect(A, DISPATCHER)
    sidecar.connects().waits(10)
    assert sidecar.sent[-1].reason is Reason.RESOLVED
    assert [alert.fires_for for alert in sidecar.sent[-1].feed] == [0]


def test_a_sidecar_that_was_replaced_goes_on() -> None:
    """From the handover."""
    flink, sidecar = vacant()
    sidecar.is_replaced(down_for=90).connects().waits(2)
    assert [alert.labels["alertname"] for alert in fed(sidecar, Reason.RESEND)] == ["FlinkNoLeader"]
    sidecar.sees(flink.elect(A, DISPATCHER)).waits(10)
    assert sidecar.sent[-1].reason is Reason.RESOLVED


def test_a_resend_that_does_not_arrive_is_recorded_and_not_repeated() -> None:
    """The next one is due in a minute. Of alerts that end there because nobody could say that they fire there is a record."""
    _, sidecar = vacant()
    sidecar.records.clear()
    sidecar.answers["am#0"] = DeliveryOutcome.REJECTED
    sidecar.waits(180)
    records = [(record.reason, record.outcome, record.alert) for record in sidecar.notifications()]
    assert records == [("RESEND", "rejected", "FlinkNoLeader")] * 3
    assert sidecar.state.outbox == {}


def test_what_an_alertmanager_did_not_take_is_tried_again() -> None:
    """A first alert, a change or an end is a notification like any other: recorded before it is sent, and retried until it arrives."""
    flink, sidecar = watching(policy=feeding(AM, OTHER_AM))
    sidecar.answers["am#1"] = DeliveryOutcome.FAILED
    fail_over(flink, sidecar).waits(1800)
    sidecar.sees(flink.elect(job_manager("jm-c"))).waits(60)
    assert sidecar.state.outbox
    del sidecar.answers["am#1"]
    sidecar.waits(700)
    assert sidecar.state.outbox == {}
    arrived = Counter((r.destination, r.reason) for r in sidecar.notifications() if r.outcome == "delivered")
    assert {key[1] for key in arrived if key[0] == "am#1"} == {key[1] for key in arrived if key[0] == "am#0"}


def test_an_old_resend_never_brings_back_what_is_over() -> None:
    """While one hangs the next one waits; it says what fires when it is sent, not when it was queued."""
    flink, sidecar = vacant()
    sidecar.answers["am#0"] = None  # hangs
    sidecar.waits(130).sees(flink.elect(A, DISPATCHER)).waits(20)
    model = AlertmanagerModel()
    model.take(fed(sidecar), sidecar.now)
    before = len(sidecar.sent)
    del sidecar.answers["am#0"]
    sidecar.waits(400)
    for delivery in sidecar.sent[before:]:
        model.take(delivery.feed, sidecar.now)
    assert sidecar.sent[-1].reason is Reason.RESOLVED
    assert model.firing(sidecar.now) == []


def test_our_own_mute_times_hold_back_what_is_new_and_end_nothing() -> None:
    """What is there already is still sent again: an alert that is muted has not ended."""
    night = TimeInterval("night", (TimeRange(times=((8 * 60 + 5, 24 * 60),)),))  # the history begins at 8:00
    flink, sidecar = vacant(feeding(route=Route("am", mute=(night,))))
    sidecar.waits(300)
    flink.vacate(THE_JOB)
    before = len(sidecar.sent)
    sidecar.sees_changes().waits(300)
    assert {delivery.reason for delivery in sidecar.sent[before:]} == {Reason.RESEND}
    assert {alert.labels["component"] for d in sidecar.sent[before:] for alert in d.feed} == {"dispatcher"}


def test_one_request_has_a_set_of_labels_once() -> None:
    """In a list the last one counts: an end behind what began anew would end it."""
    flink, sidecar = vacant()
    sidecar.answers["am#0"] = DeliveryOutcome.FAILED
    for leader in (B, A):
        sidecar.sees(flink.elect(leader, DISPATCHER)).waits(0.5)
        sidecar.sees(flink.vacate(DISPATCHER)).waits(31)
    for delivery in sidecar.sent:
        assert len({frozenset(alert.labels.items()) for alert in delivery.feed}) == len(delivery.feed)


def test_what_others_wrote_is_bounded_and_printable_and_no_label() -> None:
    """An address of a leader is whatever somebody wrote to the store."""
    flink, sidecar = watching(policy=feeding())
    fail_over(flink, sidecar, 1, job_manager("ev\x1b[31mil\u202e" + "x" * 3000)).waits(30)
    for alert in fed(sidecar):
        assert max(map(len, alert.labels.values())) < 100
        text = "".join(alert.annotations.values())
        assert text.replace("\n", "").isprintable()
        assert len(text) < 8000


def test_no_alertmanager_is_asked_while_nothing_fires() -> None:
    """And nothing changes in the journal."""
    _, sidecar = watching(policy=feeding())
    before = sidecar.state
    sidecar.waits(20)
    assert sidecar.state.alerts is before.alerts
    assert sidecar.sent == []
    assert CLUSTER in sidecar.state.clusters
