"""As many jobs as a cluster may have: `python -m tests.bench.paths [JOBS [IDLE_SECONDS]]`.

The driver runs alone in a process of its own (tests/bench/alone.py). Beside it another one watches a cluster with nobody in it, on the same
server at the same time: what the jobs cost is the difference. The tree has what Flink 2 has for each job: a leader, its checkpoint
counter and its execution plan.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from uuid import UUID

from kazoo.client import KazooClient

from sidecar.core.bounds import JOBS_OF_CLUSTER
from tests.bench.alone import Alone, digest
from tests.bench.stage import Table, leader, node, zookeeper
from tests.lab.zookeeper import ZooKeeper

JOBS = JOBS_OF_CLUSTER.most_items
IDLE_SECONDS = 30.0
WRITERS = 4
_FULL, _EMPTY = "full", "empty"
_SETTLE_SECONDS = 5.0
_QUIET_SECONDS = 2.0
_WRITE_SECONDS = 120.0
_IN_FLIGHT = 500
_MOST_ATTACH_SECONDS, _MOST_KIB, _MOST_DRAIN_SECONDS, _MOST_PEAK = 3.0, 1.0, 5.0, 1.3


def main(jobs: int = JOBS, idle_seconds: float = IDLE_SECONDS) -> None:
    """One table, and the targets."""
    ids = [f"{number:032x}" for number in range(jobs)]
    with zookeeper() as (server, _):
        populate(server.address, ids)
        with Alone(server.address, _EMPTY) as empty, Alone(server.address, _FULL) as full:
            table = Table("", f"{jobs:,} jobs", "nobody there")
            _attach(table, full, empty, jobs)
            _idle(table, full, empty, idle_seconds)
            _restart(table, server, full, empty)
            full.ask("keep")
            for turn, (changes, in_one) in enumerate(((1, 1), (5, 50)), start=1):
                _storm(table, server.address, full, ids, turn, changes, in_one)
            table.end()


def _attach(table: Table, full: Alone, empty: Alone, jobs: int) -> None:
    time.sleep(_SETTLE_SECONDS)
    busy, bare = full.report(), empty.report()
    table.row("attach, s", f"{busy.attach_seconds:.2f}", f"{bare.attach_seconds:.2f}")
    table.row("values reported", f"{busy.nodes:,}", f"{bare.nodes:,}")
    table.row("RSS, MiB", f"{busy.rss_kib / 1024:.1f}", f"{bare.rss_kib / 1024:.1f}")
    table.row("peak RSS, MiB", f"{busy.peak_kib / 1024:.1f}", f"{bare.peak_kib / 1024:.1f}")
    path_kib = (busy.rss_kib - bare.rss_kib) / jobs
    table.row("RSS of each path, KiB", f"{path_kib:.2f}", "")
    table.target("attach", busy.attach_seconds, _MOST_ATTACH_SECONDS, " s")
    table.target("RSS of each path", path_kib, _MOST_KIB, " KiB")


def _idle(table: Table, full: Alone, empty: Alone, seconds: float) -> None:
    before = [alone.report().cpu_seconds for alone in (full, empty)]
    time.sleep(seconds)
    shares = [
        (alone.report().cpu_seconds - begin) / seconds * 100 for alone, begin in zip((full, empty), before, strict=True)
    ]
    table.row(f"CPU idle, % of a core over {seconds:.0f} s", *(f"{share:.3f}" for share in shares))


def _restart(table: Table, server: ZooKeeper, full: Alone, empty: Alone) -> None:
    before = [alone.report() for alone in (full, empty)]
    for alone in (full, empty):
        alone.ask("reset")
    server.kill()
    server.start()
    after = [alone.wait_complete(snapshots=2) for alone in (full, empty)]
    table.row("threads before a restart of the server", *(str(len(report.threads)) for report in before))
    table.row("threads behind it", *(str(len(report.threads)) for report in after))
    peaks = [new.peak_kib / old.rss_kib for new, old in zip(after, before, strict=True)]
    table.row("peak RSS of the restart beside RSS before it", *(f"{peak:.2f}" for peak in peaks))
    table.target("threads", len(after[0].threads), len(before[0].threads))
    table.target("peak RSS of a restart", peaks[0], _MOST_PEAK)


def _storm(table: Table, address: str, full: Alone, ids: Sequence[str], turn: int, changes: int, in_one: int) -> None:
    """Change everything `changes` times, `in_one` writes in each transaction."""
    before = full.report()
    full.ask("reset")
    began = time.monotonic_ns() + int(_SETTLE_SECONDS * 1e9)
    with ProcessPoolExecutor(WRITERS, mp_context=get_context("spawn")) as processes:
        writers = [
            processes.submit(change, address, ids[each::WRITERS], began, turn, changes, in_one)
            for each in range(WRITERS)
        ]
        last = max(writer.result(_WRITE_SECONDS) for writer in writers)
    made = len(ids) * changes
    after = full.wait_writes(before.writes + made, _QUIET_SECONDS)
    counted, uncounted = after.writes - before.writes, after.uncounted - before.uncounted
    expected = {f"/leader/job-{job}/connection_info": value(turn, changes, number) for number, job in _numbered(ids)}
    right = full.digest() == digest(expected)
    drained = (after.last_report_at - last) / 1e9
    what = f"{changes} change{'s' * (changes > 1)} of each, {made / (last - began) * 1e9:,.0f} writes/s"
    table.row(
        f"{what}: reported / accounted for / made", f"{after.nodes - before.nodes:,} / {counted:,} / {made:,}", ""
    )
    table.row(
        "… last value right everywhere / reported without a count", f"{'yes' if right else 'NO'} / {uncounted}", ""
    )
    table.row("… last write to last value reported, s", f"{drained:.2f}", "")
    cpu = after.cpu_seconds - before.cpu_seconds
    table.row("… CPU, s / peak RSS, MiB", f"{cpu:.2f} / {after.peak_kib / 1024:.1f}", "")
    assert right, "a last value is wrong"
    assert (counted, uncounted) == (made, 0), "writes are missing"
    if changes == 1:
        table.target("drained", drained, _MOST_DRAIN_SECONDS, " s")


def _numbered(ids: Sequence[str]) -> list[tuple[int, str]]:
    return [(int(job, 16), job) for job in ids]


def value(turn: int, change: int, number: int) -> bytes:
    """What a job's leader is set to."""
    return leader(UUID(int=turn << 96 | change << 64 | number))


def populate(address: str, ids: Sequence[str]) -> None:
    """What Flink 2 keeps of that many jobs. The leaders are persistent here, so that no session has to last."""
    client = KazooClient(address)
    client.start()
    base = f"/flink/{_FULL}"
    for path in ("leader/latch", "jobs", "execution-plans"):
        client.ensure_path(f"{base}/{path}")
    client.ensure_path(f"/flink/{_EMPTY}")
    for begin in range(0, len(ids), 100):
        transaction = client.transaction()
        for number, job in _numbered(ids[begin : begin + 100]):
            transaction.create(f"{base}/execution-plans/{job}", b"\xac\xed")
            transaction.create(f"{base}/jobs/{job}")
            transaction.create(f"{base}/jobs/{job}/checkpoint_id_counter", bytes(4))
            transaction.create(f"{base}/leader/job-{job}")
            transaction.create(node(_FULL, f"/leader/job-{job}"), value(0, 0, number))
        refused = [result for result in transaction.commit() if isinstance(result, Exception)]
        assert not refused, refused[0]
    client.stop()
    client.close()


def change(address: str, ids: Sequence[str], begin_at: int, turn: int, changes: int, in_one: int) -> int:
    """Set the leaders of these jobs, in a process and session of its own. When the last write was answered: monotonic nanoseconds."""
    client = KazooClient(address)
    client.start()
    writes = [
        (node(_FULL, f"/leader/job-{job}"), value(turn, each, number))
        for each in range(1, changes + 1)
        for number, job in _numbered(ids)
    ]
    time.sleep(max(0.0, (begin_at - time.monotonic_ns()) / 1e9))
    waiting = []
    for begin in range(0, len(writes), in_one):
        if in_one == 1:
            waiting.append(client.set_async(*writes[begin]))
        else:
            transaction = client.transaction()
            for path, data in writes[begin : begin + in_one]:
                transaction.set_data(path, data)
            waiting.append(transaction.commit_async())
        if len(waiting) * in_one >= _IN_FLIGHT:
            waiting.pop(0).get(timeout=_WRITE_SECONDS)
    for write in waiting:
        write.get(timeout=_WRITE_SECONDS)
    ended = time.monotonic_ns()
    client.stop()
    client.close()
    return ended


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
