"""Mails of one incident are one thread, whoever sends which of them."""

from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from msgspec.structs import replace

from sidecar.lab.receivers import MailReceiver
from sidecar.sinks.notify.message import Answer, Message
from sidecar.sinks.notify.sender import send
from tests.kit.receivers import apprise

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

ROOT = "<0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11@flink-ha-sidecar>"


def mails(mail: MailReceiver, *messages: Message) -> list[EmailMessage]:
    """What arrives of these."""
    for message in messages:
        assert send(replace(message, endpoint=apprise(mail.url))) == Answer("delivered")
    return [message_from_bytes(each.raw, policy=policy.default) for each in mail.received]


FIRST = Message(
    apprise(""), "title", "body", 10.0, "FIRST", "warning", incident="i", thread="0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11"
)


def test_the_first_mail_is_what_the_others_refer_to(mail: MailReceiver) -> None:
    """By its Message-ID, which no mail after it has."""
    first, *later = mails(mail, FIRST, replace(FIRST, reason="GREW"), replace(FIRST, reason="RESOLVED"))
    assert (first["Message-ID"], first["In-Reply-To"], first["References"]) == (ROOT, None, None)
    assert [(each["In-Reply-To"], each["References"]) for each in later] == [(ROOT, ROOT)] * 2
    assert len({each["Message-ID"] for each in (first, *later)}) == 3


def test_a_second_copy_of_the_first_mail_is_known_as_one(mail: MailReceiver) -> None:
    """Mail servers and programs drop a Message-ID that they have."""
    assert [each.get_all("Message-ID") for each in mails(mail, FIRST, FIRST)] == [[ROOT], [ROOT]]


def test_a_message_without_a_thread_is_a_mail_by_itself(mail: MailReceiver) -> None:
    """A test message, and one that an older version has queued."""
    (alone,) = mails(mail, replace(FIRST, thread="", reason="RESOLVED"))
    assert alone["Message-ID"] != ROOT
    assert alone["References"] is None
