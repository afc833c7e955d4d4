"""A dead man's switch hears that somebody watches, for as long as that is true."""

from msgspec.structs import replace

from sidecar.core.alerts import Reason
from sidecar.core.moment import SECOND
from sidecar.core.observations import Outcome
from sidecar.core.policy import Destination, Heartbeat
from tests.core.scenery import POLICY, Flink, Sidecar, watching

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
    """Silence is what tells: nothing waits in the outbox, nothing is recorded, and the next beat comes in time."""
    _, sidecar = watching(policy=BEATING)
    sidecar.answers["snitch#0"] = Outcome.FAILED
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
