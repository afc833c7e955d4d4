"""A dead man's switch hears that somebody watches, for as long as that is true."""

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.outbox import claim, with_heartbeats
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Destination, Heartbeat
from tests.core.alerting.test_settle import NOW, outbox_of, row
from tests.kit.core_sidecar import POLICY, Sidecar, watching
from tests.kit.fake_flink import Flink

SNITCH = Heartbeat(Destination("snitch", 0), 60 * SECOND)
BEATING = replace(POLICY, heartbeats=(SNITCH,))


def beats(sidecar: Sidecar) -> int:
    return sum(delivery.reason is Reason.HEARTBEAT for delivery in sidecar.sent)


def test_it_beats_once_in_each_interval() -> None:
    """To its destination alone, and says who watches what."""
    _, sidecar = watching(policy=BEATING)
    before = beats(sidecar)
    sidecar.waits(600)
    assert beats(sidecar) - before == 10
    assert {(d.destination, d.title) for d in sidecar.sent} == {("snitch#0", "[HEARTBEAT] sidecar-0 watches default")}
    assert not any(delivery.is_shared for delivery in sidecar.sent)


def test_it_is_silent_while_nobody_can_see() -> None:
    """From the loss of the store on until it was read again; then at once."""
    sidecar = Sidecar(Flink().submit(), BEATING).waits(300)
    assert beats(sidecar) == 0
    sidecar.connects().waits(1)
    assert beats(sidecar) == 1
    sidecar.is_cut_off().waits(300)
    assert beats(sidecar) == 1
    sidecar.connects().waits(1)
    assert beats(sidecar) == 2


def test_a_beat_that_does_not_arrive_is_not_sent_later() -> None:
    """Their absence is the message: nothing waits in the outbox, nothing is recorded, and the next beat comes in time."""
    _, sidecar = watching(policy=BEATING)
    sidecar.answers["snitch#0"] = DeliveryOutcome.FAILED
    before = beats(sidecar)
    sidecar.waits(180)
    assert beats(sidecar) - before == 3
    assert sidecar.state.outbox == {}
    assert sidecar.notifications() == []


def test_a_new_process_beats_at_once() -> None:
    """When it has seen the store."""
    _, sidecar = watching(policy=BEATING)
    before = beats(sidecar)
    sidecar.is_killed(down_for=5).connects().waits(1)
    assert beats(sidecar) == before + 1


def test_it_travels_through_the_outbox_as_every_alert_does() -> None:
    """Claimed in the state before it is handed out, and one at a time: its silence says that alerts do not go out either."""
    _, sidecar = watching(policy=BEATING)
    sidecar.answers["snitch#0"] = None
    before = beats(sidecar)
    sidecar.waits(240)
    assert beats(sidecar) == before + 1
    assert sidecar.state.outbox[sidecar.sent[-1].id] == sidecar.sent[-1]
    assert sidecar.notifications() == []


def test_one_whose_attempt_was_never_settled_is_not_sent_again() -> None:
    """After five minutes the next one goes out in its place, which is no duplicate."""
    _, sidecar = watching(policy=BEATING)
    sidecar.answers["snitch#0"] = None
    sidecar.waits(61)
    first = sidecar.sent[-1]
    sidecar.answers["snitch#0"] = DeliveryOutcome.DELIVERED
    sidecar.waits(600)
    later = [delivery for delivery in sidecar.sent if delivery.queued_at.steady > first.queued_at.steady]
    assert len(later) >= 5
    assert not any(delivery.possible_duplicate for delivery in later)
    assert sidecar.state.outbox == {}


def test_one_that_waits_is_replaced_and_dropped_when_blind() -> None:
    """No heartbeat is about a time that is over."""
    _, sidecar = watching(policy=replace(BEATING, heartbeats=(Heartbeat(Destination("ops", 0), 60 * SECOND),)))
    sidecar.answers["ops#0"] = None
    sidecar.waits(61).waits(120)
    assert len(sidecar.state.outbox) == 2
    sidecar.is_cut_off().waits(1)
    assert [delivery.stage.value for delivery in sidecar.state.outbox.values()] == ["sending"]


def test_a_new_process_does_not_send_what_the_last_one_left() -> None:
    """It beats of its own accord when it has seen the store."""
    _, sidecar = watching(policy=BEATING)
    sidecar.answers["snitch#0"] = None
    sidecar.waits(61)
    sidecar.answers["snitch#0"] = DeliveryOutcome.DELIVERED
    before = beats(sidecar)
    sidecar.is_killed(down_for=5).waits(30)
    assert beats(sidecar) == before
    assert sidecar.state.outbox == {}


def test_a_backlog_of_alerts_does_not_look_like_silence() -> None:
    """A heartbeat goes before the alerts that wait for the same destination."""
    beat = replace(row("beat"), reason=Reason.HEARTBEAT, fingerprint="beat")
    outbox = with_heartbeats(
        outbox_of(*(row(f"{number}", group=f"{number}") for number in range(50))), [beat], blind=False
    )
    assert [delivery.id for delivery in claim(outbox, Moment(NOW, NOW))[1]] == ["beat"]
