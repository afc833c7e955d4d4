"""`replay`: the notifications that today's rules would have made of what was recorded."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from sidecar.settings.model import Alerting
from sidecar.simulation.record_files import Found, ReplayError, Spooled
from sidecar.simulation.replay_records import RecordReplay, ReplayedNotification
from sidecar.simulation.zookeeper_log import Transactions, are_transactions


class Replayed(Protocol):
    """What is in some files, under some rules."""

    @property
    def unreadable(self) -> int:
        """Lines that could not be read: known when all was told."""

    def tellings(self) -> Iterator[ReplayedNotification]:
        """What would have been told, in the order of time. Raises ReplayError."""


def replayed(files: Sequence[Path], rules: Alerting, observer: str | None = None) -> Replayed:
    """What is in `files`: records of one sidecar (of `observer`, where there are several), or ZooKeeper's transactions.

    Raises ReplayError.
    """
    return Transactions(files, rules, observer) if are_transactions(files) else Records(files, rules, observer)


class Records:
    """The records of one sidecar."""

    def __init__(self, files: Sequence[Path], rules: Alerting, observer: str | None) -> None:
        self._spooled = Spooled(files)
        self._observer, self._found = _chosen(self._spooled.observers(), observer)
        self._policy = rules.policy_for(self._observer, self._found.stores, self._found.external_labels)

    @property
    def unreadable(self) -> int:
        return self._spooled.unreadable

    def tellings(self) -> Iterator[ReplayedNotification]:
        """What would have been told. Raises ReplayError."""
        records = self._spooled.records(self._observer, self._found)
        return RecordReplay(self._policy, self._found.sights).retell(records)


def _chosen(observers: dict[str, Found], name: str | None) -> tuple[str, Found]:
    if not observers:
        raise ReplayError("there are no records in these files: give segments of the spool")
    if name is None and len(observers) > 1:
        raise ReplayError(f"these are records of {', '.join(sorted(observers))}: say with --observer whose to replay")
    name = name or next(iter(observers))
    if name not in observers:
        raise ReplayError(f"there are no records of {name}, but of {', '.join(sorted(observers))}")
    return name, observers[name]
