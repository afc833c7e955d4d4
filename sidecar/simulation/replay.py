"""`replay`: the notifications that today's rules send for recorded data."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import json

from sidecar.core.policy.policy import Policy
from sidecar.core.records import AnyRecord
from sidecar.settings.model import Alerting
from sidecar.simulation.record_files import lines
from sidecar.simulation.replay_records import RecordReplay
from sidecar.simulation.zookeeper_log import TransactionReplay, are_transactions

Replay = RecordReplay | TransactionReplay


def replay_of(
    files: Sequence[Path], alerting: Alerting, observer: str | None = None, like: Policy | None = None
) -> Replay:
    """A replay of the records of one sidecar (`observer`, if there are several) or of ZooKeeper transactions. Raises ReplayError.

    `like`: the policy whose links and places messages have.
    """
    if are_transactions(files):
        return TransactionReplay(files, alerting, observer, like)
    return RecordReplay(partial(lines, files), alerting, observer, like)


def replay_of_records(
    records: Callable[[], Iterable[AnyRecord]], alerting: Alerting, observer: str | None, like: Policy
) -> RecordReplay:
    """A replay of records that `records` reads, as `replay_of`. Raises ReplayError."""
    return RecordReplay(lambda: map(json.encode, records()), alerting, observer, like)
