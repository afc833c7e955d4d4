"""One voice: three sidecars notify each failover everywhere, and what comes twice is labelled so.

The long proof is the campaign's: `python -m tests.campaign --sidecars 3 --kinds everything-at-once`.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from sidecar.core.alerting import ledger_document
from sidecar.ports import LONGEST_DOCUMENT
from tests.kit.leaders import Leaders
from tests.kit.one_voice import LEDGER, Voices, books, judge, leads, read
from tests.kit.receivers import Mood, Receiver
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import LOADED_MACHINE_SECONDS, wait_for
from tests.lab.zookeeper import ZooKeeper

MOODY = {Mood.WELL: 4.0, Mood.BROKEN: 1.0, Mood.TOO_MANY: 1.0, Mood.RESETS: 1.0}
WELL = {Mood.WELL: 1.0}
FAILOVERS = 6
TAKE_OVER_SECONDS = 15.0


@pytest.fixture
def receivers() -> Iterator[list[Receiver]]:
    """One that always takes what it gets, and one that does not."""
    running = [Receiver(Random(20261121), moods) for moods in (WELL, MOODY)]
    for receiver in running:
        receiver.start()
    yield running
    for receiver in running:
        receiver.stop()


@pytest.fixture
def voices(zookeeper: ZooKeeper, leaders: Leaders, receivers: list[Receiver], tmp_path: Path) -> Iterator[Voices]:
    """Sidecars a, b and c, which have seen it."""
    assert leaders.present
    running = Voices(tmp_path, zookeeper.address, receivers)
    running.start()
    yield running
    running.kill()


def test_three_sidecars_are_one_voice(leaders: Leaders, receivers: list[Receiver], voices: Voices) -> None:
    """Failovers while a sidecar is killed and comes back, and the ledger is deleted and garbled: none is lost, none comes twice unsaid.

    Then nobody can read the ledger: each of the three notifies the last failover after a bounded wait, as a possible duplicate.
    What became of each message, each of them knows once.
    """
    for number in range(1, FAILOVERS + 1):
        leaders.fail_over()
        match number:
            case 2:  # which it has recorded: else it counts fewer failovers than the others, and finds later that they are too many
                wait_for("a to have it on disk", partial(leads, voices.sidecars[0], leaders.present))
                voices.sidecars[0].kill()
            case 3:
                leaders.client.set(LEDGER, b"garbage")
            case 4:
                voices.sidecars[0].start()
            case 5:
                leaders.client.delete(LEDGER)
        _await_messages(leaders.present, receivers, 1)
    for sidecar in voices.sidecars:
        wait_for("the last leader to be seen", partial(leads, sidecar, leaders.present))
    wait_for("the outboxes to get empty", voices.has_sent_all)
    failovers = leaders.led[1:]
    for verdict in (judge(receiver.arrivals, failovers) for receiver in receivers):
        assert (verdict.lost, verdict.unlabelled) == ([], [])

    receivers[1].moods = WELL
    leaders.client.set(LEDGER, bytes(LONGEST_DOCUMENT + 1))
    leaders.fail_over()
    _await_messages(leaders.present, receivers, len(voices.sidecars))
    leaders.client.delete(LEDGER)
    wait_for("the outboxes to get empty", voices.has_sent_all)
    for receiver in receivers:
        last = [message for message in judge(receiver.arrivals, failovers).messages if leaders.present in message.text]
        assert {(message.observer, message.labelled) for message in last} == {("a", True), ("b", True), ("c", True)}
    for sidecar in voices.sidecars:
        assert sidecar.stop() == 0
        counts = books(sidecar)
        assert counts.queued == counts.delivered + counts.already_told + counts.superseded
        assert counts.fail_opens >= len(receivers)
        assert (counts.open, counts.gave_up) == ([], 0)


def test_one_that_dies_between_claim_and_send_is_replaced_in_15_seconds(
    leaders: Leaders, receivers: list[Receiver], voices: Voices
) -> None:
    """By another one, which says that it may be a duplicate. A receiver that nobody had a claim for is not notified twice."""
    for receiver in receivers:
        receiver.moods = WELL
    leaders.fail_over()
    holder = wait_for("a claim", partial(_holder, leaders, voices))
    holder.kill()
    killed = time.time()
    _await_messages(leaders.present, receivers, 1)
    others = [sidecar for sidecar in voices.sidecars if sidecar is not holder]
    wait_for("the outboxes to get empty", lambda: all(map(_is_idle, others)))
    late = [read(arrival) for receiver in receivers for arrival in receiver.arrivals if arrival.at > killed]
    taken_over = [each for each in late if each.labelled]
    assert taken_over
    assert holder.folder.name not in {each.observer for each in taken_over}
    assert max(each.at for each in taken_over) - killed < TAKE_OVER_SECONDS + LOADED_MACHINE_SECONDS
    assert [judge(receiver.arrivals, ()).unlabelled for receiver in receivers] == [[], []]
    assert any(": taking over a notification" in sidecar.log.read_text() for sidecar in others)


def _holder(leaders: Leaders, voices: Voices) -> Sidecar | None:
    """The sidecar that has claimed a message and not sent it yet."""
    content, _ = leaders.client.get(LEDGER)
    claims = [entry.claim for entry in ledger_document.read(content).entries.values() if entry.claim]
    return next((sidecar for sidecar in voices.sidecars if claims and sidecar.folder.name == claims[0].by), None)


def _is_idle(sidecar: Sidecar) -> bool:
    return "flink_ha_outbox_pending 0.0" in sidecar.get("/metrics")[1]


def _await_messages(leader: str, receivers: list[Receiver], observers: int) -> None:
    def has_messages(receiver: Receiver) -> bool:
        messages = [arrival for arrival in [*receiver.arrivals] if f"→ {leader}:" in arrival.body]
        return len({read(arrival).observer for arrival in messages}) >= observers

    wait_for(f"messages about {leader} everywhere", lambda: all(map(has_messages, receivers)))
