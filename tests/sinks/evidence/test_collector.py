"""Every request for evidence is answered once, in bounded time, and its files take no more room than they may."""

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from queue import Queue

import pytest
from msgspec.structs import replace

from sidecar.core.captures import Capture, CaptureOutcome, EvidenceItem, EvidenceKind, Occasion
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Source
from sidecar.net.endpoints import Secret
from sidecar.settings import TlsSettings
from sidecar.sinks.evidence import collector
from sidecar.sinks.evidence.collector import CAPACITY, Collector
from tests.kit.flink_rest_server import JOB, Answer, RestServer, flink, silence

DAY = 24 * 3600.0
Results = Queue[tuple[str, tuple[EvidenceItem, ...]]]
Eventually = Callable[[Callable[[], bool]], bool]


def request(address: str | None, number: int = 1, *jobs: str) -> Capture:
    """To ask Flink, of one failover."""
    return Capture(
        id=f"c-{number}",
        cluster_id="lab",
        episode_id=f"ep-{number}",
        occasion=Occasion.LED_AGAIN,
        asked_at=Moment(0, 0),
        source=Source.FLINK_REST,
        rest_address=address,
        jobs=jobs,
        thread_dump=True,
    )


@pytest.fixture
def results() -> Results:
    """The reported results, in order."""
    return Queue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where evidence is kept."""
    return tmp_path / "evidence"


@pytest.fixture
def collect(results: Results, folder: Path) -> Iterator[Callable[..., Collector]]:
    """Starts a collector; in the end it is stopped, and has left no child."""
    with ExitStack() as cleanup:

        def start(**options: object) -> Collector:
            collector = Collector(folder, lambda *answer: results.put(answer), **options)  # type: ignore[arg-type]
            cleanup.callback(collector.stop)
            collector.start()
            return collector

        yield start
    assert children() == []


@pytest.fixture
def hanging() -> Iterator[RestServer]:
    """A Flink that accepts a request and never answers."""
    with RestServer({"/jobmanager/thread-dump": [Answer(raw=silence)]}) as server:
        yield server


def children() -> list[int]:
    """The capturing processes that this one runs."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended in between
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if (
                parent == os.getpid()
                and b"sidecar.sinks.evidence.evidence_child" in (stat.parent / "cmdline").read_bytes()
            ):
                pids.append(int(stat.parent.name))
    return pids


def described(results: Results) -> tuple[str, EvidenceKind, CaptureOutcome, str | None]:
    """The only item of the next result."""
    key, [item] = results.get(timeout=30)
    return key, item.kind, item.outcome, item.detail


def stored(folder: Path) -> set[str]:
    """The files that are there, by their names below the folder."""
    names_below = set()
    for place, folders, files in os.walk(folder):  # which does not mind that a folder is removed meanwhile
        links = [name for name in folders if Path(place, name).is_symlink()]
        names_below |= {str(Path(place, name).relative_to(folder)) for name in (*files, *links)}
    return names_below


def put(folder: Path, name: str, *, age: float, size: int = 10) -> str:
    """A file of that age, in seconds."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    os.utime(file, (time.time() - age,) * 2)
    return name


def test_answers_of_flink_are_captured(collect: Callable[..., Collector], results: Results, folder: Path) -> None:
    """The whole way: a child asks, writes the file and answers; only we may read what it wrote."""
    with RestServer(flink()) as server:
        collect().gather(request(server.address, 1, JOB))
        key, [job, dump] = results.get(timeout=30)
    assert (key, job.kind, job.outcome) == ("c-1", EvidenceKind.JOB, CaptureOutcome.CAPTURED)
    assert job.detail == "orders (c6d22602…): restored from checkpoint 2 at 2026-11-22T00:06:03Z"
    file = "ep-1/led_again-thread_dump-0.txt"
    assert (dump.kind, dump.outcome, dump.file) == (EvidenceKind.THREAD_DUMP, CaptureOutcome.CAPTURED, file)
    content = (folder / file).read_bytes()
    assert (dump.size_bytes, dump.sha256) == (len(content), sha256(content).hexdigest())
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "ep-1", folder / file)]
    assert modes == [0o700, 0o700, 0o600]
    assert stored(folder) == {file}


def test_requests_are_answered_in_order(collect: Callable[..., Collector], results: Results) -> None:
    """Also those that were made before the start."""
    collector = collect()
    for number in range(3):
        collector.gather(request(None, number))
    assert [described(results) for _ in range(3)] == [
        (f"c-{number}", EvidenceKind.THREAD_DUMP, CaptureOutcome.ABSENT, "the REST server has no leader")
        for number in range(3)
    ]


def test_an_unsafe_episode_id_is_not_used_as_a_folder_name(
    collect: Callable[..., Collector], results: Results, folder: Path
) -> None:
    """Nothing is written outside the folder."""
    with RestServer(flink()) as server:
        collect().gather(replace(request(server.address), episode_id="../../etc"))
        _, [dump] = results.get(timeout=30)
    assert dump.file == "unnamed/led_again-thread_dump-0.txt"
    assert stored(folder) == {dump.file}


def test_a_hanging_child_is_killed(collect: Callable[..., Collector], results: Results, eventually: Eventually) -> None:
    """It is reported, and the next request is served. (SIGSTOP: the child cannot end by itself.)"""
    collector = collect(time_limit=2.0)
    with RestServer({"/jobmanager/thread-dump": [Answer(raw=silence)]}) as server:
        collector.gather(request(server.address))
        assert eventually(lambda: bool(server.asked))
        [child] = children()
        os.kill(child, signal.SIGSTOP)
        assert described(results) == (
            "c-1",
            EvidenceKind.THREAD_DUMP,
            CaptureOutcome.FAILED,
            "not captured: no answer within 2 s",
        )
    collector.gather(request(None, 2))
    assert described(results)[2] is CaptureOutcome.ABSENT


def test_a_flink_that_does_not_answer_delays_no_look_at_processes(
    collect: Callable[..., Collector], results: Results, hanging: RestServer, eventually: Eventually
) -> None:
    """They may end at any moment. Of four requests to Flink each takes its patience: they are not all over before that look."""
    collector = collect()
    for number in range(1, 5):
        collector.gather(request(hanging.address, number))
    assert eventually(lambda: bool(hanging.asked))
    collector.gather(replace(request(None, 5), source=Source.PROCESSES, occasion=Occasion.OPENED))
    answered = iter(lambda: results.get(timeout=60)[0], "c-5")
    assert "c-4" not in [*answered]


def test_a_request_that_waited_too_long_is_dropped(
    collect: Callable[..., Collector], results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there was to be seen is gone, and the core does not wait for ever."""
    monkeypatch.setattr(collector, "_LATE", -1.0)
    collect().gather(request(None))
    assert described(results)[2:] == (CaptureOutcome.FAILED, "not captured: the request waited longer than -1 s")


def test_the_second_failover_of_an_episode_has_files_of_its_own(
    collect: Callable[..., Collector], results: Results, folder: Path
) -> None:
    """Nothing is written over."""
    collector = collect()
    with RestServer(flink()) as server:
        for number in (1, 2):
            collector.gather(replace(request(server.address), id=f"c-{number}", round=number))
            results.get(timeout=30)
    assert stored(folder) == {"ep-1/led_again-thread_dump-0.txt", "ep-1/led_again-2-thread_dump-0.txt"}


def test_a_killed_child_is_reported(
    collect: Callable[..., Collector], results: Results, hanging: RestServer, eventually: Eventually
) -> None:
    """For example by the OOM killer."""
    collect().gather(request(hanging.address))
    assert eventually(lambda: bool(hanging.asked))
    os.kill(children()[0], signal.SIGKILL)
    assert described(results)[2:] == (
        CaptureOutcome.FAILED,
        "not captured: the capturing process ended without an answer (exit code -9)",
    )


def test_a_child_that_cannot_be_started_is_reported(
    collect: Callable[..., Collector], results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many processes, or no memory."""

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    collect().gather(request(None))
    assert described(results)[2:] == (
        CaptureOutcome.FAILED,
        "not captured: could not start the capturing process: Resource temporarily unavailable",
    )


@pytest.mark.timing
def test_stop_kills_running_requests_and_answers_waiting_ones(
    collect: Callable[..., Collector], results: Results, hanging: RestServer, eventually: Eventually
) -> None:
    """Within seconds, each once; stop may be called twice."""
    collector = collect()
    for number in (1, 2, 3):
        collector.gather(request(hanging.address, number))
    assert eventually(lambda: bool(hanging.asked))
    began = time.monotonic()
    collector.stop()
    collector.stop()
    assert time.monotonic() - began < 4
    answers = sorted(described(results) for _ in range(3))
    assert [(key, outcome, detail) for key, _, outcome, detail in answers] == [
        ("c-1", CaptureOutcome.LOST, "not captured: the sidecar is stopping"),
        ("c-2", CaptureOutcome.FAILED, "not captured: the sidecar is stopping"),
        ("c-3", CaptureOutcome.FAILED, "not captured: the sidecar is stopping"),
    ]
    assert results.empty()
    assert children() == []


def test_stop_before_start_answers_waiting_requests(results: Results, folder: Path) -> None:
    """And it is not started any more."""
    collector = Collector(folder, lambda *answer: results.put(answer))
    collector.gather(request(None))
    collector.stop()
    collector.start()
    assert described(results)[2:] == (CaptureOutcome.FAILED, "not captured: the sidecar is stopping")
    assert not folder.exists()


def test_after_stop_a_request_is_answered_at_once_and_not_from_its_own_thread(folder: Path) -> None:
    """The thread that asks is the one that empties the inbox: it must never wait for room in it."""
    inbox: Queue[str] = Queue(1)
    collector = Collector(folder, lambda key, _: inbox.put(f"{key} {threading.current_thread() is asking}"))
    collector.stop()
    asking = threading.current_thread()
    for number in range(3):
        collector.gather(request(None, number))
    assert [inbox.get(timeout=10) for _ in range(3)] == ["c-0 False", "c-1 False", "c-2 False"]


def test_beyond_the_capacity_a_request_is_refused_at_once(
    collect: Callable[..., Collector], results: Results, hanging: RestServer, eventually: Eventually
) -> None:
    """While others are being captured and wait."""
    collector = collect()
    collector.gather(request(hanging.address, 0))
    assert eventually(lambda: bool(hanging.asked))
    for number in range(1, CAPACITY + 3):
        collector.gather(request(None, number))
    assert [described(results) for _ in range(2)] == [
        (f"c-{number}", EvidenceKind.THREAD_DUMP, CaptureOutcome.FAILED, f"not captured: {CAPACITY} others wait")
        for number in (CAPACITY + 1, CAPACITY + 2)
    ]
    assert results.empty()


def test_the_worker_survives_a_failing_report(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next request is served."""
    results: Results = Queue()

    def report(key: str, items: tuple[EvidenceItem, ...]) -> None:
        if key == "c-1":
            raise RuntimeError
        results.put((key, items))

    collector = Collector(folder, report)
    collector.start()
    try:
        collector.gather(request(None, 1))
        collector.gather(request(None, 2))
        assert described(results)[0] == "c-2"
    finally:
        collector.stop()
    assert "could not record the evidence of ep-1" in caplog.text


def test_an_unwritable_folder_is_reported_in_the_item(
    collect: Callable[..., Collector], results: Results, folder: Path
) -> None:
    """What is in short known of it is there all the same."""
    folder.write_text("a file")
    with RestServer(flink()) as server:
        collect().gather(request(server.address))
        _, [dump] = results.get(timeout=30)
    assert (dump.outcome, dump.file, dump.attributes) == (CaptureOutcome.FAILED, None, {"threads": "2"})
    assert (dump.detail or "").startswith(f"could not write {folder}/ep-1/led_again-thread_dump-0.txt: ")


def test_old_files_are_removed(
    collect: Callable[..., Collector],
    results: Results,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    eventually: Eventually,
) -> None:
    """At the start; one log line has the total. Foreign files stay, and links are not followed."""
    caplog.set_level(logging.INFO)
    other = folder.parent / "other"
    for name in ("old/opened-thread_dump-1.txt", "old/led_again-py_spy-2.txt", "mixed/opened-thread_dump-1.txt"):
        put(folder, name, age=7 * DAY + 60, size=500_000)
    put(folder, "old/.opened-thread_dump-7.txt.part", age=700)
    kept = {
        put(folder, "mixed/opened-thread_dump-2.txt", age=7 * DAY - 60),
        put(folder, "mixed/notes.txt", age=70 * DAY),
        put(folder, "mixed/.opened-thread_dump-3.txt.part", age=1),
        put(folder, "opened-thread_dump-1.txt", age=70 * DAY),
        put(folder, "a b/opened-thread_dump-1.txt", age=70 * DAY),
        put(folder, "deep/er/opened-thread_dump-1.txt", age=70 * DAY),
    }
    put(other, "opened-thread_dump-1.txt", age=70 * DAY)
    (folder / "link").symlink_to(other)
    (folder / "mixed" / "opened-thread_dump-9.txt").symlink_to(other / "opened-thread_dump-1.txt")
    collect()
    assert eventually(lambda: "removed" in caplog.text)
    assert stored(folder) == kept | {"link", "mixed/opened-thread_dump-9.txt"}
    assert stored(other) == {"opened-thread_dump-1.txt"}
    assert not (folder / "old").exists()
    assert caplog.messages == [f"removed 3 old evidence files (1.5 MB) from {folder}"]


def test_the_oldest_files_are_removed_beyond_the_size_limit(
    collect: Callable[..., Collector], results: Results, folder: Path, eventually: Eventually
) -> None:
    """After each request; its own files stay, whatever their size."""
    names = [put(folder, f"ep-{age}/opened-thread_dump-1.txt", age=age, size=1000) for age in (40, 30, 20, 10)]
    collector = collect(most_bytes=2500)
    assert eventually(lambda: stored(folder) == {*names[2:]})
    with RestServer(flink()) as server:
        collector.gather(replace(request(server.address), episode_id="new"))
        results.get(timeout=30)
    assert eventually(lambda: stored(folder) == {*names[2:], "new/led_again-thread_dump-0.txt"})
    collector.stop()
    collector = collect(most_bytes=1)
    with RestServer(flink()) as server:
        collector.gather(replace(request(server.address), episode_id="new"))
        results.get(timeout=30)
    assert eventually(lambda: stored(folder) == {"new/led_again-thread_dump-0.txt"})


def test_the_password_of_a_key_is_not_exposed(
    collect: Callable[..., Collector], results: Results, hanging: RestServer, tmp_path: Path, eventually: Eventually
) -> None:
    """Not in the command line, the environment or the answer of the child."""
    tls = TlsSettings(certificate_file=tmp_path / "no.pem", key_password=Secret("s3cret"))
    collector = collect(tls=tls)
    collector.gather(request(hanging.address, 1))
    assert eventually(lambda: bool(hanging.asked))
    child = Path(f"/proc/{children()[0]}")
    assert b"s3cret" not in (child / "cmdline").read_bytes() + (child / "environ").read_bytes()
    collector.gather(request("https://127.0.0.1:8443", 2))
    os.kill(int(child.name), signal.SIGKILL)
    results.get(timeout=30)
    assert described(results)[2:] == (CaptureOutcome.FAILED, f"the TLS file {tmp_path}/no.pem cannot be used")
