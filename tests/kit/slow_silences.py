"""A document of silences that is within every bound, and as slow to match as that lets it be. It hides nothing."""

import time
from typing import Final
from uuid import uuid4

from sidecar.core.alerting import silence_document
from sidecar.core.alerting.silence_document import MOST, MOST_PATTERNS, StoredSilence
from sidecar.core.moment import SECOND
from sidecar.core.policy.routing import Matcher, Operator

_SLOW: Final = "(a|aa|aaa)*(x?){5}[^F]{3}z"
_DAY: Final = 24 * 3600 * SECOND


def slow_silences() -> bytes:
    """The document, from an hour ago for twenty days."""
    now = round(time.time() * SECOND)

    def silence(number: int) -> StoredSilence:
        operator = Operator.MATCHES if number < MOST_PATTERNS else Operator.EQUAL
        matchers = (Matcher("alert", operator, f"{_SLOW}{number}"),)
        return StoredSilence(str(uuid4()), matchers, now - _DAY // 24, now + 20 * _DAY, "x", "x" * 350)

    known = [silence(number) for number in range(MOST)]
    return silence_document.written({each.id: each for each in known})
