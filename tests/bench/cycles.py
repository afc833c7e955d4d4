"""A leader that comes and goes too fast: `python -m tests.bench.cycles [CYCLES [CYCLES_OF_THE_LONG_PAUSES]]`.

The dispatcher's leader node is created and deleted again and again, each time with another session id, with the same pause behind each of
the two. Flink's own listener watches it, and beside it our driver, alone in its process (tests/bench/alone.py). Then the last leader comes
(`create`), and changes its session id (`set`): who reports it? Flink's listener is deaf behind the last cycle that it reported,
if it reports neither. Our driver reads a contested node once a second and counts what it hears between: not each leader is reported, each
write is accounted for.
"""

import sys
import time
from pathlib import Path
from uuid import UUID

from kazoo.client import KazooClient
from msgspec import json

from tests.bench.alone import Alone, digest
from tests.bench.stage import DISPATCHER, Flinks, Listener, Table, leader, node, zookeeper

CYCLES = 10_000
CYCLES_OF_LONG_PAUSES = 2_000
PAUSES = (0.0, 0.5, 2.0, 5.0)
"""Milliseconds."""
_LONG = 2.0
_START_SECONDS = 60.0
_PROBE_SECONDS = 10.0
_QUIET_SECONDS = 1.0
_BEFORE = UUID(int=1 << 64)
_PROBES = (UUID(int=2 << 64), UUID(int=3 << 64))
"""The last leader, and its last session id."""


def main(cycles: int = CYCLES, cycles_of_long_pauses: int = CYCLES_OF_LONG_PAUSES) -> None:
    """One row for each pause."""
    table = Table(
        "pause ms",
        "cycles",
        "in s",
        "Flink's: reported",
        "deaf after cycle",
        "last leader reported",
        "ours: reported",
        "accounted for",
        "last leader reported",
    )
    with zookeeper() as (server, folder):
        flinks = Flinks(folder)
        if not flinks:
            print("there is no javac: without Flink's listener")
        for pause in PAUSES:
            _series(table, server.address, folder, flinks, pause, cycles_of_long_pauses if pause >= _LONG else cycles)
    table.end()


def _series(table: Table, address: str, folder: Path, flinks: Flinks, pause: float, cycles: int) -> None:
    cluster_id = f"pause-{PAUSES.index(pause)}"
    client = KazooClient(address)
    client.start()
    client.create(node(cluster_id), leader(_BEFORE), makepath=True)
    theirs = flinks.listener(address, cluster_id, folder / f"{cluster_id}.log") if flinks else None
    try:
        with Alone(address, cluster_id) as ours:
            before = ours.report()
            took = _play(client, node(cluster_id), theirs, ours, cycles, pause / 1000)
            made = cycles + len(_PROBES)
            after = ours.wait_writes(before.writes + made, _QUIET_SECONDS)
            right = ours.digest() == digest({f"{DISPATCHER}/connection_info": leader(_PROBES[-1])})
    finally:
        if theirs is not None:
            theirs.stop()
        client.stop()
        client.close()
    counted, uncounted = after.writes - before.writes, after.uncounted - before.uncounted
    table.row(
        f"{pause:g}",
        f"{cycles:,}",
        f"{took:.0f}",
        *(_flinks(theirs, cycles) if theirs else "---"),
        f"{after.nodes - before.nodes:,}",
        f"{counted:,} of {made:,}" + (f", {uncounted:,} reported without a count" if uncounted else ""),
        "yes" if right else "NO",
    )
    assert right, "the last value is wrong"
    assert (counted, uncounted) == (made, 0), "writes are missing"


def _play(client: KazooClient, path: str, theirs: Listener | None, ours: Alone, cycles: int, pause: float) -> float:
    """The cycles, and the last leader; how many seconds the cycles took."""
    if theirs is not None:
        assert theirs.wait_for(str(_BEFORE), _START_SECONDS), "Flink's listener does not report the first leader"
    ours.ask("keep")
    client.delete(path)
    began = time.monotonic()
    for number in range(1, cycles + 1):
        client.create(path, leader(UUID(int=number)))
        _rest(pause)
        client.delete(path)
        _rest(pause)
    took = time.monotonic() - began
    for session_id, write in zip(_PROBES, (client.create, client.set), strict=True):
        write(path, leader(session_id))
        if theirs is not None:
            theirs.wait_for(str(session_id), _PROBE_SECONDS)
            theirs.assert_runs()
    return took


def _rest(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def _flinks(listener: Listener, cycles: int) -> tuple[str, str, str]:
    """How many of the leaders it reported; the cycle of the last one, if it reported none behind the cycles; whether of the very last."""
    ids = [json.decode(line)["leader_session_id"] for _, line in listener.lines]
    session_ids = {UUID(session_id) for session_id in ids if session_id}
    numbers = {session_id.int for session_id in session_ids if session_id.int <= cycles}
    deaf = not session_ids.intersection(_PROBES)
    return (
        f"{len(numbers):,}",
        f"{max(numbers, default=0):,}" if deaf else "-",
        "yes" if _PROBES[-1] in session_ids else "no",
    )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
