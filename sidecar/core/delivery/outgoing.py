"""A delivery as its service gets it."""

import re
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.cluster.records.record_lines import DUPLICATE_NOTE
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.message import Message

_ID: Final = re.compile(r"[0-9a-f-]{36}")
"""A thread comes with a group, and a group may come from a handover, which others can write."""


def outgoing(delivery: Delivery) -> Message:
    """The message, with the note about a possible duplicate, and without what only the outbox needs."""
    return replace(
        delivery,
        body=f"{delivery.body}\n\n{DUPLICATE_NOTE}" if delivery.possible_duplicate else delivery.body,
        reason=_service_reason(delivery),
        incident=delivery.incident or delivery.fingerprint,
        thread=delivery.thread if _ID.fullmatch(delivery.thread) else "",
        parts=(),
        owed=(),
    )


def _service_reason(delivery: Delivery) -> Reason:
    """The reason as services know it."""
    if delivery.reason is Reason.CONFIGURATION_CHANGED:
        return Reason.SHRANK if delivery.goes_on else Reason.RESOLVED
    return Reason.FIRST if delivery.reason is Reason.DRILL else delivery.reason
