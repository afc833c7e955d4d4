"""Journals with records in them, and spools that empty them."""

from pathlib import Path

from sidecar.core.records import AnyRecord
from sidecar.core.state import State
from sidecar.journal import Journal, JournalReader
from sidecar.sinks.spool.segment_store import segment_store
from sidecar.sinks.spool.spool_writer import Spool
from tests.kit.observed_failovers import failover, first_sight, play, records_of


def records() -> list[AnyRecord]:
    """What two failovers leave to be sealed."""
    _, effects = play([*first_sight(), *failover(10, term=2), *failover(20, term=3)])
    return [effect.record for effect in records_of(effects)]


def opened(folder: Path) -> Journal:
    """The journal in `folder`."""
    journal = Journal(folder)
    journal.open()
    return journal


def journal_with(folder: Path, some: list[AnyRecord]) -> None:
    """Add records to the journal in `folder`."""
    journal = Journal(folder)
    state = journal.open()
    assert journal.commit(State(state.clusters), some)
    journal.close()


def spool(
    folder: Path,
    where: Path | str | None = None,
    *,
    roll_records: int = 4,
    roll_interval: float = 60.0,
    observer: str = "jm-0",
) -> Spool:
    """Of the journal in `folder`, to `where`, else to its folder `spool`."""
    place = segment_store(where or folder / "spool", observer)
    return Spool(
        place, JournalReader(folder), observer=observer, roll_interval=roll_interval, roll_records=roll_records
    )


def run_and_stop(some: Spool) -> None:
    """Seal all there is."""
    some.start()
    some.stop()
