"""How much a command reads, before Spark starts: which of Java's compilers are worth it depends on that."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote

import msgspec

from sidecar.audit.log.manifest import CLOSED, MANIFEST, SEGMENTS, SOURCES, Manifest, checkpoint_of
from sidecar.audit.spark.jvm import Run

_T = TypeVar("_T")
_LARGE_BYTES: Final = 20_000_000
_HUGE_SPOOL_BYTES: Final = 200_000_000
_HUGE_DATES_BYTES: Final = 100_000_000


def run_over(url: str) -> Run:
    """A run that reads some of what is at this URL; taken to be large where that is not a folder on this machine."""
    folder = folder_of(url)
    return Run.LARGE if folder is None else _run(_sizes(folder))


def run_of_ingest(spool: str, audit: str) -> Run:
    """A run that reads every segment in a spool that the audit log does not have."""
    folder, log = folder_of(spool), folder_of(audit)
    if folder is None or log is None:
        return Run.LARGE
    return _run_of_new(_sizes(folder, _ingested(folder, log)), _HUGE_SPOOL_BYTES, log)


def run_of_materialization(audit: str) -> Run:
    """A run that reads every record of the dates that are not closed."""
    log = folder_of(audit)
    return Run.LARGE if log is None else _run_of_new(_sizes_of_open_dates(log), _HUGE_DATES_BYTES, log)


def _run_of_new(new: Iterable[int], huge: int, log: str) -> Run:
    """How large a run is that reads all of the `new` files, and some of the log."""
    run = _run(new, huge)
    return _run(_sizes(log)) if run is Run.SMALL else run


def _run(sizes: Iterable[int], huge: int | None = None) -> Run:
    """How large a run over files of these sizes is. Stops counting when that is known. `huge`: for how many bytes it takes minutes."""
    total = 0
    for size in sizes:
        total += size
        if total > (huge or _LARGE_BYTES):
            return Run.HUGE if huge else Run.LARGE
    return Run.LARGE if total > _LARGE_BYTES else Run.SMALL


def _ingested(spool: str, audit: str) -> set[str]:
    """The segments, below the spool, that the audit log has."""
    lists = Path(audit, checkpoint_of(f"file:{spool}"), SEGMENTS).glob("*.json")
    return {path for paths in _decoded(lists, list[str]) for path in paths}


def _sizes_of_open_dates(log: str) -> Iterator[int]:
    """The sizes of the files that a materialization reads of the dates after the last closed one."""
    last = _last_closed(log)
    for table in SOURCES:
        for folder in Path(log, table).glob("*=*"):
            value = folder.name.partition("=")[2]  # of a date or a month
            if last is None or value >= str(last + timedelta(days=1))[: len(value)]:
                yield from _sizes(str(folder))


def _last_closed(log: str) -> date | None:
    """The last closed date; None also if the newest manifest cannot be read."""
    manifests = sorted(file for file in Path(log, CLOSED).glob("*.json") if MANIFEST.fullmatch(file.name))
    return next((manifest.last for manifest in _decoded(manifests[-1:], Manifest)), None)


def _decoded(files: Iterable[Path], kind: type[_T]) -> Iterator[_T]:
    """The JSON in these files, without those that cannot be read. Spark has not started yet."""
    for file in filter(Path.is_file, files):  # reading a pipe would block
        with suppress(OSError, msgspec.MsgspecError):
            yield msgspec.json.decode(file.read_bytes(), type=kind)


def folder_of(url: str) -> str | None:
    """The absolute path of the folder on this machine; None if it is elsewhere."""
    if url.startswith("file:"):
        url = unquote(url.removeprefix("file:").removeprefix("//"))
    elif "://" in url:
        return None
    return str(Path(url).absolute())


def _sizes(folder: str, paths: Collection[str] = ()) -> Iterator[int]:
    """The sizes of the files in a folder and below, without those at `paths` below it; none if it does not exist."""
    for parent, _, names in os.walk(folder):
        for path in (f"{parent}/{name}" for name in names):
            if path.removeprefix(f"{folder}/") in paths:
                continue
            with suppress(OSError):
                yield os.stat(path).st_size  # noqa: PTH116  os.walk gives names, not Paths
