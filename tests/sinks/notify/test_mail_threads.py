"""Mails of one incident are one thread, whoever sends which of them."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from queue import Queue

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.message import Message
from sidecar.core.observations import DeliveryOutcome
from sidecar.sinks.notify.notifier import Notifier
from sidecar.sinks.notify.sender import send
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.receivers import apprise
from tests.lab.receivers import MailReceiver
from tests.sinks.notify.test_notifier import DELIVERY

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

ROOT = "<0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11@flink-ha-sidecar>"


def mails(mail: MailReceiver, *messages: Message) -> list[EmailMessage]:
    """What arrives of these."""
    for message in messages:
        assert send(message, apprise(mail.url), 10.0) == Answer("delivered")
    return [message_from_bytes(each.raw, policy=policy.default) for each in mail.received]


FIRST = Message(
    "title",
    "body",
    "warning",
    reason="FIRST",
    receiver="ops",
    incident="i",
    thread="0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11",
)


def test_the_first_mail_is_what_the_others_refer_to(mail: MailReceiver) -> None:
    """By its Message-ID, which no mail after it has."""
    first, *later = mails(mail, FIRST, replace(FIRST, reason="GREW"), replace(FIRST, reason="RESOLVED"))
    assert (first["Message-ID"], first["In-Reply-To"], first["References"]) == (ROOT, None, None)
    assert [(each["In-Reply-To"], each["References"]) for each in later] == [(ROOT, ROOT)] * 2
    assert len({each["Message-ID"] for each in (first, *later)}) == 3


def test_a_second_copy_of_the_first_mail_is_known_as_one(mail: MailReceiver) -> None:
    """Mail servers and programs drop a Message-ID that they have."""
    assert [message.get_all("Message-ID") for message in mails(mail, FIRST, FIRST)] == [[ROOT], [ROOT]]


def test_a_message_without_a_thread_is_a_mail_by_itself(mail: MailReceiver) -> None:
    """A test message, and one that an older version has queued."""
    (alone,) = mails(mail, replace(FIRST, thread="", reason="RESOLVED"))
    assert alone["Message-ID"] != ROOT
    assert alone["References"] is None


@pytest.mark.parametrize("thread", ["x>\r\nBcc: evil@example.com", "A" * 36, "0" * 10_000, ""])
def test_a_thread_that_is_not_ours_reaches_no_mail(mail: MailReceiver, thread: str) -> None:
    """It comes with a group of alerts, and a handover that others have written may hold one."""
    settled: Queue[DeliveryOutcome] = Queue()
    notifier = Notifier({"ops#0": apprise(mail.url)}, lambda _, attempt: settled.put(attempt.outcome), workers=1)
    notifier.start()
    try:
        notifier.send(replace(DELIVERY, thread=thread, reason=Reason.RESOLVED))
        assert settled.get(timeout=60) is DeliveryOutcome.DELIVERED
    finally:
        notifier.stop()
    (alone,) = mails(mail)
    assert alone["References"] is None
    assert alone["Bcc"] is None
