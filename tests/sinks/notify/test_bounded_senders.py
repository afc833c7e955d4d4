"""A receiver that answers without end costs one attempt: neither memory, nor other deliveries."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.core.bounds import CHILD, MAIL_SERVER, MIB, OUT_OF_MEMORY, SENDER
from sidecar.core.observations import DeliveryOutcome
from sidecar.sinks.notify.notifier import check_endpoints
from tests.kit.receivers import apprise
from tests.kit.strange_servers import answering
from tests.lab.receivers import HttpReceiver, MailReceiver
from tests.sinks.notify.test_notifier import DELIVERY, MakeNotifier, Outbox, children, eventually, notify, outbox

__all__ = ["notify", "outbox"]


def endless_after(commands: int) -> Callable[[socket.socket], None]:
    """A mail server that answers so many commands, and continues its next reply without end."""

    def behaviour(connection: socket.socket) -> None:
        with connection.makefile("rb") as client:
            if commands:
                connection.sendall(b"220 here\r\n")
            for number in range(1, commands + 1):
                line = client.readline()
                if number < commands:
                    connection.sendall(b"354 go on\r\n" if line.upper().startswith(b"DATA") else b"250 fine\r\n")
                if line.upper().startswith(b"DATA") and number < commands:
                    while client.readline().strip() != b".":
                        pass
            while True:
                connection.sendall(b"250-and there is more\r\n" * 4096)

    return behaviour


@pytest.mark.parametrize("commands", [0, 1, 2, 4], ids=["greeting", "EHLO", "MAIL", "DATA"])
def test_a_mail_server_whose_reply_does_not_end_is_given_up(
    notify: MakeNotifier, outbox: Outbox, commands: int
) -> None:
    """At once, and the message may have arrived: it is sent again, as a possible duplicate."""
    with answering(endless_after(commands)) as address:
        notify({"ops#0": f"mailto://{address}?to=ops@example.org&from=flink@example.org"}).send(DELIVERY)
        _, outcome, detail = outbox.next()
    assert outcome is DeliveryOutcome.TIMED_OUT
    assert f"more than {MAIL_SERVER.most_bytes >> 10} KiB" in detail


def test_every_reply_of_a_mail_server_may_be_as_long(notify: MakeNotifier, outbox: Outbox) -> None:
    """The bound is of one reply, not of all together."""
    reply = b"250-fine\r\n" * 4000 + b"250 fine\r\n"

    def behaviour(connection: socket.socket) -> None:
        connection.sendall(b"220 here\r\n")
        with connection.makefile("rb") as client:
            for line in client:
                connection.sendall(b"354 go on\r\n" if line.upper().startswith(b"DATA") else reply)
                if line.upper().startswith(b"DATA"):
                    while client.readline().strip() != b".":
                        pass
                    connection.sendall(reply)

    with answering(behaviour) as address:
        notify({"ops#0": f"mailto://{address}?to=ops@example.org&from=flink@example.org"}).send(DELIVERY)
        assert outbox.next()[1] is DeliveryOutcome.DELIVERED


def test_a_sender_has_no_more_memory_than_its_bound(notify: MakeNotifier, web: HttpReceiver) -> None:
    """Whatever a service answers, and whatever reads it."""
    web.answer_after = 5.0
    notify({"ops#0": web.url}).send(DELIVERY)
    assert eventually(lambda: web.received)
    [child] = children()
    [limit] = [line for line in Path(f"/proc/{child}/limits").read_text().splitlines() if line.startswith("Max data")]
    assert limit.split()[3:5] == [str(SENDER.most_bytes)] * 2


def test_a_child_that_needs_more_ends_with_a_status_of_its_own() -> None:
    """Its parent can say why there is no answer."""
    code = "from sidecar.runtime.answering import answer_once; answer_once(lambda: bytearray(1 << 30))"
    with subprocess.Popen([sys.executable, "-c", code, str(64 * MIB)], stdin=subprocess.PIPE, process_group=0) as child:
        assert child.stdin
        child.stdin.write(b"{}\n")
        child.stdin.flush()
        assert child.wait(30) == OUT_OF_MEMORY


def test_half_of_its_memory_is_enough_for_a_sender(
    notify: MakeNotifier, outbox: Outbox, mail: MailReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other half is for what services answer."""
    monkeypatch.setattr("sidecar.sinks.notify.notifier.SENDER", SENDER._replace(most_bytes=SENDER.most_bytes // 2))
    notify({"ops#0": mail.url}).send(DELIVERY)
    assert outbox.next()[1:] == (DeliveryOutcome.DELIVERED, "")


def test_a_child_that_answers_too_much_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was answered may be in its answer."""
    monkeypatch.setattr("sidecar.runtime.child.CHILD", CHILD._replace(most_bytes=8))
    problems = check_endpoints({"ops#0": apprise("json://127.0.0.1")}).problems
    assert problems == {"ops#0": "could not be checked: the sender answered with more than 0 MiB"}
