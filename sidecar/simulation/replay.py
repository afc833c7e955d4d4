"""`replay`: the notifications that today's rules send for recorded data."""

from collections.abc import Sequence
from pathlib import Path

from sidecar.settings.model import Alerting
from sidecar.simulation.replay_records import RecordReplay
from sidecar.simulation.zookeeper_log import TransactionReplay, are_transactions


def replay_of(
    files: Sequence[Path], alerting: Alerting, observer: str | None = None
) -> RecordReplay | TransactionReplay:
    """A replay of the records of one sidecar (`observer`, if there are several) or of ZooKeeper transactions. Raises ReplayError."""
    return (TransactionReplay if are_transactions(files) else RecordReplay)(files, alerting, observer)
