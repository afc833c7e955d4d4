"""Answers of Flink's REST server are captured; any other answer becomes one line, in time."""

import copy
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sidecar.core.captures import CaptureOutcome, EvidenceItem, EvidenceKind
from sidecar.sinks.evidence import flink_rest
from sidecar.sinks.evidence.evidence_files import EvidenceFolder
from tests.kit.certificates import Authority
from tests.kit.flink_rest_server import (
    ELECTING,
    INITIALIZING,
    JOB,
    NEVER_RESTORED,
    RESTORED,
    UNKNOWN_JOB,
    Answer,
    RestServer,
    drip,
    flink,
    overview,
    silence,
)
from tests.lab.flink import Lab
from tests.lab.processes import free_port


@pytest.fixture
def evidence_folder(tmp_path: Path) -> EvidenceFolder:
    """Where files are written."""
    return EvidenceFolder(str(tmp_path), "ep/led_again")


def captured(
    evidence_folder: EvidenceFolder,
    address: str | None,
    *jobs: str,
    tls: Mapping[str, str | None] | None = None,
    seconds: float = 20.0,
) -> list[EvidenceItem]:
    """The items as the sidecar reads them."""
    return msgspec.convert(list(flink_rest.capture(address, jobs, tls, seconds, evidence_folder)), list[EvidenceItem])


def job_item(
    evidence_folder: EvidenceFolder, answers: dict[str, list[Answer]], seconds: float = 20.0
) -> tuple[CaptureOutcome, str | None]:
    """Outcome and detail of the only job."""
    with RestServer(answers) as server:
        job = captured(evidence_folder, server.address, JOB, seconds=seconds)[0]
    assert (job.kind, job.subject, job.file) == (EvidenceKind.JOB, JOB, None)
    return job.outcome, job.detail


def test_a_job_is_reported_with_its_restored_checkpoint(evidence_folder: EvidenceFolder) -> None:
    """As Flink 2.3.0 and 1.20.5 answer after a failover."""
    with RestServer(flink()) as server:
        [job, _] = captured(evidence_folder, server.address, JOB)
    assert job == EvidenceItem(
        kind=EvidenceKind.JOB,
        subject=JOB,
        outcome=CaptureOutcome.CAPTURED,
        detail="orders (c6d22602…): restored from checkpoint 2 at 2026-11-22T00:06:03Z",
        attributes={
            "restored_checkpoint_id": "2",
            "restored_at": "2026-11-22T00:06:03.816000Z",
            "restored_path": f"file:/data/checkpoints/{JOB}/chk-2",
            "is_savepoint": "false",
            "name": "orders",
            "state": "RUNNING",
        },
    )


def test_a_savepoint_is_named_as_such(evidence_folder: EvidenceFolder) -> None:
    """Not as a checkpoint."""
    answer = copy.deepcopy(RESTORED)
    answer["latest"]["restored"] |= {"id": 153, "is_savepoint": True}
    assert job_item(evidence_folder, flink(checkpoints=[Answer(answer)])) == (
        CaptureOutcome.CAPTURED,
        "orders (c6d22602…): restored from savepoint 153 at 2026-11-22T00:06:03Z",
    )


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, "started without state: no checkpoint was restored"),
        ({"config": [Answer({"interval": 2**63 - 1})]}, "started without state: checkpointing is off"),
        (
            {"checkpoints": [Answer({"errors": [f"Checkpointing was not enabled for job {JOB}."]}, 404)]},
            "started without state: checkpointing is off",
        ),
        (
            {"checkpoints": [Answer({"errors": ["Checkpointing has not been enabled."]}, 404)]},
            "started without state: checkpointing is off",
        ),
    ],
)
def test_a_job_that_lost_its_state_is_reported(
    evidence_folder: EvidenceFolder, answers: dict[str, list[Answer]], expected: str
) -> None:
    """The most important line. With checkpointing off, newer Flink answers 200 and older 404."""
    answers = flink(**{"checkpoints": [Answer(NEVER_RESTORED)]} | answers)
    assert job_item(evidence_folder, answers) == (CaptureOutcome.CAPTURED, f"orders (c6d22602…): {expected}")


def test_a_job_that_flink_does_not_know_is_absent(evidence_folder: EvidenceFolder) -> None:
    """It has ended meanwhile; Flink's stack trace is not repeated."""
    assert job_item(evidence_folder, flink(checkpoints=[UNKNOWN_JOB])) == (
        CaptureOutcome.ABSENT,
        f"orders (c6d22602…): Flink does not know this job: Job {JOB} not found",
    )


@pytest.mark.parametrize("passing", [ELECTING, INITIALIZING])
def test_an_election_is_retried(evidence_folder: EvidenceFolder, passing: Answer) -> None:
    """Temporary failures are retried."""
    outcome, detail = job_item(
        evidence_folder, flink(checkpoints=[passing, passing, Answer(RESTORED)], jobs=[ELECTING, overview()])
    )
    assert (outcome, detail) == (
        CaptureOutcome.CAPTURED,
        "orders (c6d22602…): restored from checkpoint 2 at 2026-11-22T00:06:03Z",
    )


def test_a_job_that_is_not_restored_yet_is_waited_for(evidence_folder: EvidenceFolder) -> None:
    """A scheduler that waits for slots restores late: until then there is no word of its state."""
    answers = flink(
        checkpoints=[Answer(NEVER_RESTORED), Answer(RESTORED)], jobs=[overview(state="CREATED"), overview()]
    )
    assert (
        job_item(evidence_folder, answers)[1]
        == "orders (c6d22602…): restored from checkpoint 2 at 2026-11-22T00:06:03Z"
    )


@pytest.mark.parametrize("later", [Answer(NEVER_RESTORED), Answer(raw=silence)], ids=["as before", "no answer"])
def test_a_job_not_restored_in_time_is_not_reported_as_lost_state(
    evidence_folder: EvidenceFolder, later: Answer
) -> None:
    """Not restored yet, and started without state, are two things."""
    answers = flink(checkpoints=[Answer(NEVER_RESTORED), later], jobs=[overview(state="CREATED")])
    assert job_item(evidence_folder, answers, seconds=3.0) == (
        CaptureOutcome.ABSENT,
        "orders (c6d22602…): not restored yet, it is CREATED",
    )


@pytest.mark.timing
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(raw=silence), "has not answered in time"),
        (Answer(raw=drip), "has not answered in time"),
        (Answer(b"[" * (3 << 20)), "answers with more than 2 MiB"),
        (Answer(b"<html>"), "answers with status 200 and no JSON object"),
        (Answer(b"[1]"), "answers with status 200 and no JSON object"),
        (Answer(b"[" * 100_000), "answers with status 200 and no JSON object"),
        (Answer(b"{}"), "cannot be read: latest.restored"),
        (Answer({"latest": {"restored": 7}}), "cannot be read: latest.restored"),
        (Answer({"latest": {"restored": {"id": "7", "restore_timestamp": 1}}}), "cannot be read: latest.restored"),
        (Answer({"latest": {"restored": {"id": 7, "restore_timestamp": 1 << 80}}}), "cannot be read: latest.restored"),
        (Answer({"errors": "\x1b[2J"}, 403), "answers with status 403: no reason given"),
        (ELECTING, "status 503: Service temporarily unavailable due to an ongoing leader election. Please refresh."),
        (Answer(raw=lambda _: [b"nonsense\r\n\r\n"]), "server failed: BadStatusLine"),
        (Answer(raw=lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"]), "server failed: IncompleteRead"),
    ],
)
def test_a_bad_answer_is_one_line(evidence_folder: EvidenceFolder, answer: Answer, expected: str) -> None:
    """In bounded time, and printable."""
    began = time.monotonic()
    outcome, detail = job_item(evidence_folder, flink(checkpoints=[answer]), seconds=1.5)
    assert outcome is CaptureOutcome.FAILED
    assert detail is not None
    assert expected in detail
    assert detail.isprintable()
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[::]", "224.0.0.1"),
        *("100.100.100.200", "168.63.129.16", "[fd00:ec2::254]", "2852039166", "0xa9fea9fe"),
    ],
)
def test_addresses_where_no_jobmanager_can_be_are_refused(host: str, evidence_folder: EvidenceFolder) -> None:
    """A published address never leads to a cloud's metadata server, however it is written."""
    [dump] = captured(evidence_folder, f"http://{host}:8081")
    assert dump.outcome is CaptureOutcome.REFUSED
    assert (dump.detail or "").startswith("no JobManager can have the address ")


def test_ports_of_other_services_are_refused(evidence_folder: EvidenceFolder) -> None:
    """The ports below 1024 belong to mail, SSH and the like."""
    [dump] = captured(evidence_folder, "http://127.0.0.1:25")
    assert (dump.outcome, dump.detail) == (
        CaptureOutcome.REFUSED,
        "port 25 is not allowed: below 1024 only 80 and 443 are",
    )


def test_a_redirect_is_not_followed(evidence_folder: EvidenceFolder) -> None:
    """An answer must not choose whom we ask."""
    with RestServer(flink()) as other:
        moved = Answer({"errors": ["Moved."]}, 307, f"Location: {other.address}/jobs/{JOB}/checkpoints\r\n")
        outcome, detail = job_item(evidence_folder, flink(checkpoints=[moved]))
    assert (outcome, detail) == (
        CaptureOutcome.FAILED,
        "job c6d22602…: Flink's REST server answers with status 307: Moved.",
    )
    assert other.asked == []


def test_no_proxy_is_used(evidence_folder: EvidenceFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the environment configures one."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert job_item(evidence_folder, flink())[0] is CaptureOutcome.CAPTURED


def test_names_of_jobs_are_bounded_and_printable(evidence_folder: EvidenceFolder) -> None:
    """A job may be called anything."""
    _, detail = job_item(evidence_folder, flink(jobs=[overview(name="\x1b]0;x\x07\n" + "x" * 10_000)]))
    assert detail is not None
    assert detail.isprintable()
    assert len(detail) < 250


@pytest.mark.timing
def test_hanging_does_not_add_up(evidence_folder: EvidenceFolder) -> None:
    """Twenty jobs of a server that hangs take as long as all may take together, and each is answered."""
    jobs = [f"{number:032x}" for number in range(20)]
    hanging = Answer(raw=silence)
    with RestServer({f"/jobs/{job}/checkpoints": [hanging] for job in jobs}) as server:
        began = time.monotonic()
        items = captured(evidence_folder, server.address, *jobs, seconds=2.0)
        took = time.monotonic() - began
    assert [item.subject for item in items] == [*jobs, server.address]
    assert {item.outcome for item in items} == {CaptureOutcome.FAILED}
    assert took < 4


def test_a_refused_connection_is_reported(evidence_folder: EvidenceFolder) -> None:
    """The refusal of the connection is what people can work with."""
    items = captured(evidence_folder, f"http://127.0.0.1:{free_port()}", JOB, seconds=1.0)
    reason = "Flink's REST server cannot be reached: connection refused"
    assert [item.detail for item in items] == [f"job c6d22602…: {reason}", reason]


def test_without_time_for_another_request_the_earlier_failure_is_reported(evidence_folder: EvidenceFolder) -> None:
    """The second job gets the reason of the first."""
    capturing = flink_rest.capture(f"http://127.0.0.1:{free_port()}", [JOB, "f" * 32], None, 0.4, None)
    first = next(capturing)
    time.sleep(0.5)
    reason = "Flink's REST server cannot be reached: connection refused"
    assert [first["detail"], *(item["detail"] for item in capturing)] == [
        f"job c6d22602…: {reason}",
        f"job ffffffff…: {reason}",
    ]


@pytest.mark.parametrize(
    "address",
    ["", "ftp://h:1", "http://h", "http://u:p@h:1", "http://h:0", "http://h:65536", "http://h:1/x", "http://a b:1",
     "http://h:1\r\nX: y", "http://h:\uff11", "file:///etc/passwd", "http://h:1/\n", "http://\ud800:1"],
)  # fmt: skip
def test_an_invalid_address_is_refused(evidence_folder: EvidenceFolder, address: str) -> None:
    """Anything can be in the store."""
    items = captured(evidence_folder, address, JOB)
    assert [item.outcome for item in items] == [CaptureOutcome.FAILED] * 2
    assert items[0].detail is not None
    assert items[0].detail.startswith("not the address of a REST server: ")
    assert items[0].detail.isprintable()


@pytest.mark.parametrize("job", ["../../jars", "x" * 32, JOB.upper(), JOB + "\n", ""])
def test_an_invalid_job_id_is_not_requested(evidence_folder: EvidenceFolder, job: str) -> None:
    """It would be part of a path."""
    with RestServer(flink()) as server:
        items = captured(evidence_folder, server.address, job)
    assert (items[0].outcome, server.asked) == (CaptureOutcome.FAILED, ["/jobmanager/thread-dump"])


def test_without_a_leader_there_is_no_request(evidence_folder: EvidenceFolder) -> None:
    """The outcome is ABSENT, not FAILED."""
    items = captured(evidence_folder, None, JOB)
    assert {item.kind: (item.outcome, item.detail) for item in items} == dict.fromkeys(
        (EvidenceKind.THREAD_DUMP, EvidenceKind.JOB), (CaptureOutcome.ABSENT, "the REST server has no leader")
    )


def test_the_thread_dump_of_the_jobmanager_is_a_file(evidence_folder: EvidenceFolder, tmp_path: Path) -> None:
    """All threads as text; what would command a terminal is not in it."""
    with RestServer(flink()) as server:
        [item] = captured(evidence_folder, server.address)
    file = "ep/led_again-thread_dump-0.txt"
    assert (item.kind, item.outcome, item.file) == (EvidenceKind.THREAD_DUMP, CaptureOutcome.CAPTURED, file)
    assert item.attributes == {"threads": "2"}
    assert (tmp_path / file).read_text() == (
        '"main" Id=1 WAITING\n\tat java.base@17.0.15/jdk.Unsafe.park\n\n"evil�[2J" Id=2 RUNNABLE �\n'
    )


@pytest.mark.parametrize("address", ["http://a..b:8081", f"http://{'a' * 64}.b:8081", "http://[....]:8081"])
def test_an_invalid_host_name_is_a_failure(evidence_folder: EvidenceFolder, address: str) -> None:
    """Not an exception."""
    [job, dump] = captured(evidence_folder, address, JOB)
    assert {job.outcome, dump.outcome} == {CaptureOutcome.FAILED}


@pytest.mark.timing
def test_a_slow_name_resolution_ends_at_the_deadline(
    evidence_folder: EvidenceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver itself has no limit."""
    resolved = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolved.wait(60) and [])
    began = time.monotonic()
    [job, _] = captured(evidence_folder, "http://jm:8081", JOB, seconds=1.0)
    assert job.outcome is CaptureOutcome.FAILED
    assert "has not answered in time" in (job.detail or "")
    assert time.monotonic() - began < 10
    resolved.set()


def test_an_old_flink_has_no_thread_dump(evidence_folder: EvidenceFolder) -> None:
    """1.14 answers as for every path that it does not know."""
    answer = Answer({"errors": ["Unable to load requested file /jobmanager/thread-dump."]}, 404)
    with RestServer(flink(threads=[answer])) as server:
        [item] = captured(evidence_folder, server.address)
    assert (item.outcome, item.detail) == (
        CaptureOutcome.ABSENT,
        "this Flink has no thread dump over REST: 1.15 and newer have",
    )


PASSWORD = "s3cret"


class _Secured:
    """A server that wants to know by certificate who asks, and the files that it takes."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder / "authority")
        certificate, key = authority.issue("server", "IP:127.0.0.1")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.context.load_verify_locations(authority.ca)
        self.context.verify_mode = ssl.CERT_REQUIRED
        certificate, key = authority.issue("client", "DNS:client", password=PASSWORD)
        files: dict[str, Any] = {"ca_file": authority.ca, "certificate_file": certificate, "key_file": key}
        self.files = {name: str(file) for name, file in files.items()} | {"key_password": PASSWORD}


def test_with_tls_both_sides_authenticate(evidence_folder: EvidenceFolder, tmp_path: Path) -> None:
    """`security.ssl.rest` with mutual authentication; an untrusted server gets no request."""
    secured = _Secured(tmp_path)
    with RestServer(flink(), secured.context) as server:
        trusted = captured(evidence_folder, server.address, JOB, tls=secured.files)
        untrusted = captured(evidence_folder, server.address, JOB)
        assert server.asked.count(f"/jobs/{JOB}/checkpoints") == 1
    assert {item.outcome for item in trusted} == {CaptureOutcome.CAPTURED}
    assert {item.outcome for item in untrusted} == {CaptureOutcome.FAILED}
    assert "CERTIFICATE_VERIFY_FAILED" in str(untrusted[0].detail)


def test_tls_files_that_cannot_be_used_are_named(evidence_folder: EvidenceFolder, tmp_path: Path) -> None:
    """And the password is not."""
    secured = _Secured(tmp_path)
    wrong = {**secured.files, "key_password": "wr0ng"}
    [item] = captured(evidence_folder, "https://127.0.0.1:8443", tls=wrong)
    assert item.detail == f"the TLS file {secured.files['certificate_file']} cannot be used"
    [item] = captured(evidence_folder, "https://127.0.0.1:8443", tls={"ca_file": "/no/ca.pem"})
    assert item.detail == "the TLS file /no/ca.pem cannot be used"


@pytest.mark.e2e
def test_a_real_flink_reports_the_restored_checkpoint(
    lab: Lab, evidence_folder: EvidenceFolder, tmp_path: Path
) -> None:
    """Right after a failover of a real Flink, while the job still begins: the checkpoint, and a thread dump of the new leader."""
    job = lab.submit_job()
    lab.wait_for_leader().kill()
    leader = lab.wait_for_leader()
    [restored, dump] = captured(evidence_folder, leader.rest_address, job)
    assert restored.outcome is CaptureOutcome.CAPTURED
    number = restored.attributes["restored_checkpoint_id"]
    assert (restored.detail or "").startswith(f"never-ending ({job[:8]}…): restored from checkpoint {number} at 20")
    assert restored.attributes["restored_path"].endswith(f"/{job}/chk-{number}")
    assert dump.file is not None
    assert "flink-pekko.actor.default-dispatcher" in (tmp_path / dump.file).read_text()
