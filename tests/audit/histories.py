"""Histories of leaderships, made by hand, with answers that are known: one cluster each."""

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from sidecar.core.records import AnyRecord, PositionRecord, TransitionRecord, record_id
from tests.audit.spooling import NOON, coverage, instant, notification, session_id, transition

A, B, C = session_id("a"), session_id("b"), session_id("c")

_PATTERNS = {
    "GRANTED": "null->B",
    "CHANGED": "A->B",
    "READDRESSED": "A->A'",
    "REVOKED": "A->null",
    "RETIRED": "A->gone",
    "OBSCURED": "A->?",
}


def address(session: str | None) -> str | None:
    """Where the leader of a session is."""
    return f"pekko.tcp://flink@jm-{session[0]}:6123/user/rpc/dispatcher_0" if session else None


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


class History:
    """What was recorded of the dispatcher of one cluster, or of another component of it; times are seconds after noon."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.records: list[AnyRecord] = []

    def happened(
        self, seconds: float, kind: str, after: str | None, before: str | None = None, **fields: Any
    ) -> "History":
        """A transition: `before` is the leader last known, `after` the one that leads now. Observers that saw the same give one record."""
        number = len(self.records)
        made = transition(
            number,
            at(seconds),
            **{
                "id": record_id("history", self.cluster_id, number),
                "cluster_id": self.cluster_id,
                "kind": kind,
                "pattern": _PATTERNS.get(kind, "?->A" if after else "?->null"),
                "before_session_id": before,
                "after_session_id": after,
                "after_address": address(after),
                "last_known_session_id": before,
                "last_known_address": address(before),
                "same_leader": after is not None and after == before,
                "vacant_seconds": None,
                "position": PositionRecord(czxid=number, mzxid=number),
                **fields,
            },
        )
        self.records.append(made)
        return self

    def granted(self, seconds: float, after: str, before: str | None, vacant: float | None, **fields: Any) -> "History":
        return self.happened(seconds, "GRANTED", after, before, vacant_seconds=vacant, **fields)

    def revoked(self, seconds: float, before: str, **fields: Any) -> "History":
        return self.happened(seconds, "REVOKED", None, before, **fields)

    def discovered(self, seconds: float, after: str | None, before: str | None = None, **fields: Any) -> "History":
        return self.happened(seconds, "DISCOVERED", after, before, **fields)

    def covered(
        self, begin: float, end: float, state: str = "seeing", observer: str = "jm-0", piece: float = 3600
    ) -> "History":
        """What one observer could see, in pieces of an hour as it records them, or of another length."""
        while begin < end:
            until = min(begin + piece, end)
            identity = record_id("history", self.cluster_id, "coverage", observer, begin)
            place = {"id": identity, "cluster_id": self.cluster_id, "observer": observer}
            self.records.append(replace(coverage(0, at(until)), **place, began_at=instant(at(begin)), state=state))
            begin = until
        return self

    def notified(
        self, seconds: float, outcome: str, attempt: int = 0, *, queued: float | None = None, **fields: Any
    ) -> "History":
        """What became, at `seconds`, of an alert that was queued then, or at `queued`."""
        number = len(self.records)
        queued = seconds if queued is None else queued
        identity = record_id("history", self.cluster_id, number)
        place = {"id": identity, "cluster_id": self.cluster_id, "destination": "ops#0", "fingerprint": "f1"}
        outcome_of_it = {"outcome": outcome, "attempt": attempt, "queued_at": instant(at(queued))}
        made = replace(notification(0, at(seconds)), **place | outcome_of_it | fields)
        delivery_id = record_id("delivery", made.observer, made.destination, made.reason, queued)
        self.records.append(replace(made, delivery_id=delivery_id))
        return self

    def transitions(self) -> list[TransitionRecord]:
        return [record for record in self.records if isinstance(record, TransitionRecord)]
