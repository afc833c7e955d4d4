"""Segments in an object store: what holds for a folder holds there, whatever the store does."""

import http.server
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecar.core.errors import installing
from sidecar.settings import SettingsError
from sidecar.sinks.spool.segment_store import segment_store
from tests.kit.s3_server import Line, S3Server
from tests.kit.spools import journal_with, records, run_and_stop, spool
from tests.shell.test_spool import sealed_ids

REMOTE = "s3://bucket/spool"
KEY, SECRET = "AKIDHUNTER2", "xoxbHUNTER2"
CHILD = """
import sys
from pathlib import Path
from tests.kit.spools import run_and_stop, spool
run_and_stop(spool(Path(sys.argv[1]), sys.argv[2]))
"""

Eventually = Callable[[Callable[[], bool]], bool]
SpoolLog = Callable[[], list[str]]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One for all tests here."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server(shared_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """It runs, its bucket is empty, and the environment says how to reach it."""
    shared_server.start()
    for path in sorted(shared_server.bucket.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    monkeypatch.setenv("AWS_ENDPOINT_URL", shared_server.url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return shared_server


@pytest.fixture(autouse=True)
def spool_log(caplog: pytest.LogCaptureFixture) -> Iterator[SpoolLog]:
    """What the spool logged. Never a credential, and never a second line."""

    def messages() -> list[str]:
        return [entry.getMessage() for entry in caplog.records if entry.name == "sidecar.spool"]

    with caplog.at_level(logging.INFO):
        yield messages
    for message in messages():
        assert KEY not in message
        assert SECRET not in message
        assert "\n" not in message


def segments(folder: Path) -> dict[str, bytes]:
    """Everything below a spool, by its path."""
    files = (path for path in (folder / "spool").rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_bucket_gets_what_a_folder_gets(tmp_path: Path, server: S3Server, spool_log: SpoolLog) -> None:
    """The same names, the same bytes; and nothing is logged."""
    journal_with(tmp_path, records())
    run_and_stop(spool(tmp_path))
    run_and_stop(spool(tmp_path, REMOTE))
    assert len(segments(tmp_path)) > 1
    assert segments(server.bucket) == segments(tmp_path)
    assert spool_log() == []


def test_a_restart_goes_on_behind_the_last_object(tmp_path: Path, server: S3Server) -> None:
    """Without gap or repetition, also when the journal never learned how far the objects reach."""
    some = records()
    for part in (some[:5], some[5:9], some[9:]):
        journal_with(tmp_path, part)
        run_and_stop(spool(tmp_path, REMOTE))
    run_and_stop(spool(tmp_path, REMOTE))
    assert sealed_ids(server.bucket) == [record.id for record in some]


def test_only_what_is_behind_the_known_end_is_listed(tmp_path: Path, server: S3Server) -> None:
    """A restart does not look through years of segments, nor at those of others."""
    journal_with(tmp_path, records())
    run_and_stop(spool(tmp_path, REMOTE))
    run_and_stop(spool(tmp_path, REMOTE, observer="jm-1"))
    *before, last = sorted(path.name for path in (server.bucket / "spool" / "jm-0").iterdir())
    assert before
    assert segment_store(REMOTE, "jm-0").recover(last.partition("-")[0]) == [last]


def test_what_cannot_be_stored_waits(
    tmp_path: Path, server: S3Server, spool_log: SpoolLog, eventually: Eventually
) -> None:
    """The server is killed and comes back: nothing is lost, all is in order, and there is one line for each."""
    some = records()
    journal_with(tmp_path, some[:5])
    run_and_stop(spool(tmp_path, REMOTE))
    server.kill()
    journal_with(tmp_path, some[5:])
    running = spool(tmp_path, REMOTE)
    running.start()
    assert eventually(lambda: len(spool_log()) == 1)
    server.start()
    assert eventually(lambda: len(spool_log()) == 2)
    running.stop()
    assert sealed_ids(server.bucket) == [record.id for record in some]
    assert spool_log() == [
        f"cannot write segments to {REMOTE}/jm-0: the connection is refused; records stay in the journal, retrying",
        f"writing segments to {REMOTE}/jm-0 again",
    ]


def test_an_answer_that_is_lost_makes_no_second_segment(
    tmp_path: Path, server: S3Server, spool_log: SpoolLog, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """A segment that was stored without our knowing is not cut anew, also when more records wait by then."""
    some = records()
    journal_with(tmp_path, some[:3])
    with Line(server) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        line.loses_answers = True
        running = spool(tmp_path, REMOTE, roll_interval=0, roll_records=100)
        running.start()
        assert eventually(lambda: len(spool_log()) == 1)
        assert len(sealed_ids(server.bucket)) == 3
        journal_with(tmp_path, some[3:])
        line.loses_answers = False
        running.stop()
    assert sealed_ids(server.bucket) == [record.id for record in some]
    assert "the connection broke" in spool_log()[0]


@pytest.mark.parametrize("alike", [False, True])
def test_what_others_put_is_left_as_it_is(
    tmp_path: Path, server: S3Server, spool_log: SpoolLog, eventually: Eventually, *, alike: bool
) -> None:
    """It is logged, records wait, and once the other object is gone they are sealed under that name."""
    journal_with(tmp_path, records()[:3])
    run_and_stop(spool(tmp_path))
    ((name, content),) = segments(tmp_path).items()
    running = spool(tmp_path, f"{REMOTE}/")
    running.start()
    assert eventually(lambda: running.sealed > 0)  # it has looked where the chain ends
    foreign = b"x" * len(content) if alike else b"of somebody else"
    (server.bucket / name).parent.mkdir(parents=True)
    (server.bucket / name).write_bytes(foreign)
    running.stop()
    assert segments(server.bucket) == {name: foreign}
    (server.bucket / name).unlink()
    run_and_stop(spool(tmp_path, REMOTE))
    assert segments(server.bucket) == {name: content}
    reason = (
        f"{Path(name).name} exists, is not ours, and is not overwritten: give every sidecar an observer or a spool.url of its own, "
        "or remove that object"
    )
    assert spool_log() == [f"cannot write segments to {REMOTE}/jm-0: {reason}; records stay in the journal, retrying"]


@pytest.mark.timing
def test_a_server_that_hangs_does_not_hold_up_the_end(tmp_path: Path, server: S3Server) -> None:
    """The process has ended soon, and without a word; what it was about to store is stored once."""
    some = records()
    journal_with(tmp_path, some[:5])
    run_and_stop(spool(tmp_path, REMOTE))
    journal_with(tmp_path, some[5:])
    server.pause()  # what connects is accepted, and what is said is taken: nobody answers
    begun = time.monotonic()
    child = [sys.executable, "-W", "error", "-c", CHILD, str(tmp_path), REMOTE]
    ended = subprocess.run(child, capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - begun < 20
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    server.resume()
    run_and_stop(spool(tmp_path, REMOTE))
    assert sealed_ids(server.bucket) == [record.id for record in some]


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """A server that always gives the same answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Of GET and PUT alike."""
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_GET  # noqa: N815  the name is the library's

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (
            403,
            f"<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>{KEY}</AWSAccessKeyId><StringToSign>{SECRET}</StringToSign></Error>",
            "the credentials are refused, or do not allow to list, get and put objects (SignatureDoesNotMatch)",
        ),
        (401, SECRET, "the credentials are refused, or do not allow to list, get and put objects"),
        (503, "<Error><Code>SlowDown</Code></Error>", "the answer was 503 (SlowDown)"),
        (200, "<html>Welcome!</html>", "it cannot be reached, or is no object store"),
        (301, "", "it is in another region: set AWS_REGION"),
        (
            400,
            "<Error><Code>AuthorizationHeaderMalformed</Code></Error>",
            "it is in another region: set AWS_REGION (AuthorizationHeaderMalformed)",
        ),
        (
            403,
            "<Error><Code>RequestTimeTooSkewed</Code></Error>",
            "the clock of this machine differs too much from that of the store (RequestTimeTooSkewed)",
        ),
    ],
)
def test_a_refusal_is_one_line(
    tmp_path: Path,
    server: S3Server,
    spool_log: SpoolLog,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: str,
    reason: str,
) -> None:
    """It says what to do, and nothing of what the server said but its code."""
    journal_with(tmp_path, records())
    with answering(status, body) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        run_and_stop(spool(tmp_path, REMOTE))
    assert spool_log() == [f"cannot write segments to {REMOTE}/jm-0: {reason}; records stay in the journal, retrying"]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("AWS_ALLOW_HTTP", "false", "its endpoint is http://, which needs AWS_ALLOW_HTTP=true"),
        ("AWS_CONDITIONAL_PUT", "disabled", "AWS_CONDITIONAL_PUT forbids to put an object only where there is none"),
        ("AWS_ENDPOINT_URL", "http://[", "its endpoint is no URL"),
    ],
)
def test_an_environment_that_cannot_work_is_one_line(
    tmp_path: Path,
    server: S3Server,
    spool_log: SpoolLog,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    reason: str,
) -> None:
    """Whatever obstore makes of it."""
    journal_with(tmp_path, records())
    monkeypatch.setenv(variable, value)
    run_and_stop(spool(tmp_path, REMOTE))
    assert spool_log() == [f"cannot write segments to {REMOTE}/jm-0: {reason}; records stay in the journal, retrying"]


def test_a_bucket_that_is_missing_is_one_line(tmp_path: Path, server: S3Server, spool_log: SpoolLog) -> None:
    """With the code of the store."""
    journal_with(tmp_path, records())
    run_and_stop(spool(tmp_path, "s3://missing/spool"))
    reason = "there is no such bucket or container (NoSuchBucket)"
    assert spool_log() == [
        f"cannot write segments to s3://missing/spool/jm-0: {reason}; records stay in the journal, retrying"
    ]


@pytest.mark.parametrize(
    ("where", "environment", "reason"),
    [
        ("s3://bucket//spool", {}, "it cannot be reached, or is no object store"),
        ("az://container/spool", {}, "set AZURE_STORAGE_ACCOUNT_NAME"),
        (
            "abfss://account.dfs.core.windows.net/spool",
            {},
            "it must be like abfss://container@account.dfs.core.windows.net/prefix",
        ),
        (REMOTE, {"AWS_ENDPOINT_URL": "minio:9000"}, "AWS_ENDPOINT_URL must begin with https:// or http://"),
        (REMOTE, {"AWS_TIMEOUT": SECRET}, "a variable of the environment (AWS_…, AZURE_…, GOOGLE_…) is not understood"),
    ],
)
def test_what_can_be_known_is_said_before_anything_runs(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, where: str, environment: dict[str, str], reason: str
) -> None:
    """By `config check` too."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as error:
        segment_store(where, "jm-0")
    assert str(error.value) == f"spool.url: {where} cannot be used: {reason}"


def test_without_the_extra_one_line_says_what_to_install() -> None:
    """And who has a folder needs no obstore."""
    start = "import sys; sys.modules['obstore'] = None; from sidecar.cli.main import main; main()"
    check = [sys.executable, "-c", start, "config", "check", "--zookeeper", "zk:2181"]
    ended = [
        subprocess.run(
            check,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "FLINK_HA_SIDECAR_SPOOL": where},
        )
        for where in ("/x", REMOTE)
    ]
    assert [one.returncode for one in ended] == [0, 2]
    assert ended[1].stderr == (
        f"flink-ha-sidecar: spool.url: {REMOTE} needs one more package: {installing('spool-remote')}\n"
    )
