"""Both images can be built from the Dockerfile, and start as an unprivileged user on a read-only root."""

import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import sidecar
from sidecar.lab.processes import free_port
from tests.kit.images import BUILD_SECONDS, TOOLS, Builder, Image, RootFolder, missing

pytestmark = [pytest.mark.image, pytest.mark.timeout(BUILD_SECONDS * 2)]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    """Both, built once."""
    if lacks := missing():
        pytest.skip(f"{', '.join(lacks)} missing: images are built and started with {', '.join(TOOLS)}, as root")
    return Builder(tmp_path_factory.mktemp("images")).build()


@pytest.fixture(scope="module")
def root(images: dict[str, Image]) -> Iterator[RootFolder]:
    """The sidecar's image."""
    with images["sidecar"].root() as folder:
        yield folder


@pytest.fixture(scope="module")
def audit_root(images: dict[str, Image]) -> Iterator[RootFolder]:
    """The audit's image."""
    with images["audit"].root() as folder:
        yield folder


def test_their_sizes_are_known(images: dict[str, Image], capsys: pytest.CaptureFixture[str]) -> None:
    """Both were built, and the log of the tests says how large they are."""
    with capsys.disabled():
        print("\n" + "\n".join(f"image {target}: {image.size}" for target, image in images.items()))  # noqa: T201
    assert [bool(re.fullmatch(r"[\d.]+ [MG]B", image.size)) for image in images.values()] == [True, True]


def test_the_command_answers(root: RootFolder) -> None:
    """`--help` and `--version` print and end with 0."""
    described = root.run("flink-ha-sidecar", "--help")
    assert (described.returncode, described.stderr) == (0, "")
    assert "Usage: flink-ha-sidecar" in described.stdout
    assert sidecar.__version__ in root.run("flink-ha-sidecar", "--version").stdout


def test_it_runs_as_an_unprivileged_user_who_cannot_write(root: RootFolder) -> None:
    """The image's user is 65532, without a capability, and the root is read-only but for the volumes and /tmp."""
    status = root.run("cat", "/proc/self/status").stdout
    assert re.findall(r"^(?:Uid|Gid|CapEff|CapBnd|NoNewPrivs):\s+(\S+)", status, re.MULTILINE) == [
        *("65532", "65532"),
        *("0" * 16, "0" * 16),
        "1",
    ]
    written = root.run("sh", "-c", "for d in / /opt/flink-ha-sidecar /etc /tmp; do touch $d/x 2>&1 || :; done")
    assert written.stdout.count("Read-only file system") == 3
    writable = "touch /tmp/x /var/lib/flink-ha-sidecar/x /var/spool/flink-ha-sidecar/x"
    assert root.run("sh", "-c", writable).returncode == 0


def test_what_it_needs_beside_python_is_there_and_nothing_else(root: RootFolder, audit_root: RootFolder) -> None:
    """py-spy starts; there is no compiler and no pip; a Java is in the audit's image alone."""
    assert re.match(r"py-spy \d", root.run("py-spy", "--version").stdout)
    assert [program for program in ("gcc", "pip", "pip3", "java") if root.has(program)] == []
    assert [program for program in ("gcc", "pip", "pip3", "java") if audit_root.has(program)] == ["java"]


def test_an_object_store_can_be_used(root: RootFolder) -> None:
    """The base has no certificate authorities, without which no store can be opened: `run` starts, and goes on until it is ended."""
    config = "zookeeper: {quorum: '127.0.0.1:1'}\nobserver: tests\nspool: {url: 's3://bucket/spool'}\n"
    (root.folder / "etc" / "object-store.yaml").write_text(config)
    store = "AWS_ACCESS_KEY_ID=somebody AWS_SECRET_ACCESS_KEY=secret AWS_REGION=somewhere"
    run = "timeout --preserve-status 5 flink-ha-sidecar run --config /etc/object-store.yaml"
    ended = root.run("sh", "-c", f"{store} {run}")
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


def test_run_without_a_configuration_says_what_is_missing(root: RootFolder) -> None:
    """The image's own command, with nothing mounted, ends with 2 and one line that says what to do."""
    with root.start() as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (2, "")
    assert len(errors.splitlines()) == 1, errors
    assert "Traceback" not in errors


def test_run_watches_where_no_store_answers_and_stops_with_0(root: RootFolder) -> None:
    """`run` on a read-only root keeps its journal in the volume, is alive, not ready, and ends with 0 at SIGTERM."""
    port, nobody = free_port(), free_port()
    config = f"zookeeper: {{quorum: '127.0.0.1:{nobody}'}}\nobserver: tests\nhttp: {{host: 127.0.0.1, port: {port}}}\n"
    (root.folder / "etc" / "flink-ha-sidecar.yaml").write_text(config)
    process = root.start("run", "--config", "/etc/flink-ha-sidecar.yaml")
    try:
        deadline = time.monotonic() + 60
        while _status(port, "/livez") != 200:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.1)
        assert _status(port, "/readyz") == 503
        journal = Path(f"/proc/{process.pid}/root/var/lib/flink-ha-sidecar/journal.db")
        assert journal.stat().st_uid == 65532
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def _status(port: int, path: str) -> int:
    """The status of an answer; 0 where there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


@pytest.mark.spark
def test_the_audit_image_starts_spark(audit_root: RootFolder) -> None:
    """An ingest of an empty spool, as the same user on a read-only root, ends with 0."""
    folders = "/tmp/spool /tmp/audit"  # noqa: S108  in the image's own /tmp
    ingest = "flink-ha-sidecar audit ingest --spool /tmp/spool --audit /tmp/audit"
    done = audit_root.run("sh", "-c", f"mkdir -p {folders} && {ingest}", seconds=300)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    described = audit_root.run("flink-ha-sidecar", "audit", "--help")
    assert (described.returncode, described.stderr) == (0, "")
