"""Reads how long an HTTP server asks to wait before the next request: the header `Retry-After` (RFC 9110, 10.2.3)."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]{0,20})?")
_LONGEST_DATE: Final = 40


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds, from 0 to infinity: the caller bounds them. A date counts by the server's own clock. None: nothing that can be read."""
    value = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    until = http_date(value)
    if until is None:
        return None
    now = http_date(headers.get("Date", "").strip()) or datetime.now(UTC)
    return max((until - now).total_seconds(), 0.0)


def http_date(text: str) -> datetime | None:
    """The time in a header such as `Date`. None: it cannot be read."""
    if len(text) > _LONGEST_DATE:
        return None
    try:
        date = parsedate_to_datetime(text)
        return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
