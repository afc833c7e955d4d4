"""Receivers that accept everything."""

from collections.abc import Iterator

import pytest

from sidecar.lab.receivers import HttpReceiver, MailReceiver
from tests.sinks.receiving import mailbox, webhook


@pytest.fixture
def web() -> Iterator[HttpReceiver]:
    """A webhook that accepts everything."""
    with webhook() as receiver:
        yield receiver


@pytest.fixture
def mail() -> Iterator[MailReceiver]:
    """A mail server that accepts everything."""
    with mailbox() as receiver:
        yield receiver
