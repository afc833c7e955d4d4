"""Flink is fetched once, complete or not at all, with several callers and after interruptions."""

import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.kit.files import folders_that_come_and_go
from tests.lab.distribution import _download_state, flink_home
from tests.lab.lab_error import LabError

VERSION = "9.9.9"
WHEEL = f"apache_flink_libraries-{VERSION}-py2.py3-none-any.whl"
JARS = {f"flink-dist-{VERSION}.jar": b"dist" * 300_000, "log4j-api-2.25.3.jar": b"log"}
ASK = f"""
from tests.lab.distribution import flink_home
print(flink_home("{VERSION}", lambda line: print(line, flush=True)), flush=True)
"""


class Index(ThreadingHTTPServer):
    """A package index on 127.0.0.1 that serves one wheel; it can stop in the middle of it."""

    daemon_threads = True

    def __init__(self, wheel: bytes) -> None:
        super().__init__(("127.0.0.1", 0), IndexHandler)
        self.wheel = wheel
        self.downloads = 0
        self.half_sent = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"


class IndexHandler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        if self.path == "/simple/apache-flink-libraries/":
            self._send(
                b"text/html", f'<!DOCTYPE html><html><body><a href="/{WHEEL}">{WHEEL}</a></body></html>'.encode()
            )
        elif self.path == f"/{WHEEL}":
            self.server.downloads += 1
            self._send(b"application/octet-stream", self.server.wheel)
        else:
            self.send_error(404)

    def _send(self, content_type: bytes, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type.decode())
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        if body is self.server.wheel:
            self.server.half_sent.set()
            self.server.go_on.wait(60)
        self.wfile.write(body[half:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the name that the base class gives it
        """Nothing is logged."""

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True  # the one who asked was killed


def _wheel(jars: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for name, content in jars.items():
            wheel.writestr(f"pyflink/lib/{name}", content)
        wheel.writestr("pyflink/opt/flink-python.jar", b"not needed")
        wheel.writestr("pyflink/lib/README.txt", b"no jar")
        info = f"apache_flink_libraries-{VERSION}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: apache-flink-libraries\nVersion: {VERSION}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py2-none-any\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return packed.getvalue()


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache folder that is not there yet."""
    folder = tmp_path / "a cache"
    monkeypatch.setenv("FLINK_HA_SIDECAR_CACHE", str(folder))
    return folder


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The only index that pip knows, with the wheel of Flink 9.9.9."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with Index(_wheel(JARS)) as server:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join()


def _content(home: Path) -> dict[str, bytes]:
    return {str(file.relative_to(home)): file.read_bytes() for file in home.rglob("*") if file.is_file()}


def _names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_it_is_fetched_once(index: Index, cache: Path) -> None:
    """The first call fetches the jars and reports it, the second finds them; nothing else stays in the cache."""
    lines: list[str] = []
    home = flink_home(VERSION, lines.append)
    assert home == cache / f"flink-{VERSION}"
    assert _content(home) == {f"lib/{name}": content for name, content in JARS.items()}
    assert lines[0] == f"fetching Flink {VERSION} with pip, once (200 to 330 MB)"
    assert lines[-1] == f"unpacking Flink {VERSION}"
    assert all(line.startswith(f"fetching Flink {VERSION}") for line in lines[1:-1])  # where pip took long
    lines.clear()
    assert flink_home(VERSION, lines.append) == home
    assert (lines, index.downloads, _names(cache)) == ([], 1, {f"flink-{VERSION}", "lock"})


def test_progress_is_reported_while_pip_removes_folders(tmp_path: Path) -> None:
    """What pip has downloaded so far is measured in folders that come and go: that never ends a download."""
    log = tmp_path / "pip.log"
    log.touch()
    with folders_that_come_and_go(tmp_path):
        lines = {_download_state(VERSION, tmp_path, log) for _ in range(200)}
    assert lines == {f"fetching Flink {VERSION} … 0 MB"}


def test_an_interrupted_download_leaves_nothing_behind(index: Index, cache: Path) -> None:
    """Killed with -9 in the middle, nothing can be taken for a distribution; the next call fetches it whole and tidies up."""
    index.go_on.clear()
    with subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.DEVNULL) as asker:
        assert index.half_sent.wait(60)
        asker.kill()
    assert not (cache / f"flink-{VERSION}").exists()
    assert len(_names(cache)) == 2  # the hidden partial download, and the lock, which no process holds
    index.go_on.set()
    home = flink_home(VERSION, lambda _line: None)
    assert _content(home) == {f"lib/{name}": content for name, content in JARS.items()}
    assert (index.downloads, _names(cache)) == (2, {f"flink-{VERSION}", "lock"})


def test_two_processes_that_ask_at_once_fetch_it_once(index: Index, cache: Path) -> None:
    """The second waits for the first, reports it, and gets the same folder."""
    index.go_on.clear()
    command = [sys.executable, "-c", ASK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert index.half_sent.wait(60)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "another process is fetching Flink: waiting for it\n"
            index.go_on.set()
            answers = [process.communicate(timeout=60)[0].splitlines()[-1] for process in (first, second)]
    assert (answers, index.downloads) == ([str(cache / f"flink-{VERSION}")] * 2, 1)


def test_a_slow_download_shows_its_progress(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """While pip downloads, lines report how much has arrived."""
    monkeypatch.setattr("tests.lab.distribution._PROGRESS_SECONDS", 0.3)
    index.go_on.clear()
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        if "…" in line and "… 0 MB" not in line:
            index.go_on.set()

    flink_home(VERSION, progress)
    assert f"fetching Flink {VERSION} (1 MB) … 1 MB" in lines


@pytest.mark.parametrize(
    ("version", "wheel", "message"),
    [
        ("9.9.8", _wheel(JARS), "No matching distribution found for apache-flink-libraries==9.9.8"),
        (VERSION, _wheel(JARS)[:500_000], "pip could not fetch Flink 9.9.9"),
        (VERSION, _wheel({"log4j-api.jar": b"log"}), f"{WHEEL} contains no flink-dist jar"),
    ],
)
def test_a_failed_fetch_is_one_line(version: str, wheel: bytes, message: str, index: Index, cache: Path) -> None:
    """An unknown version, a damaged package and a foreign one are distinguished, and leave nothing behind."""
    index.wheel = wheel
    with pytest.raises(LabError, match=message) as caught:
        flink_home(version, lambda _line: None)
    assert "\n" not in str(caught.value)
    assert _names(cache) == {"lock"}


@pytest.mark.parametrize("version", ["", "2.3", "2.3.0-SNAPSHOT", "../2.3.0", "2.3.0 --help"])
def test_what_is_no_version_is_refused(version: str, cache: Path) -> None:
    """Nothing but three numbers reaches pip or the file system."""
    with pytest.raises(LabError, match="is no Flink version: give one like"):
        flink_home(version, lambda _line: None)
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_one_line(cache: Path) -> None:
    """The error names the folder, the reason and the remedy."""
    cache.write_text("a file")
    with pytest.raises(LabError) as caught:
        flink_home(VERSION, lambda _line: None)
    assert str(caught.value) == (
        f"could not fetch Flink {VERSION} into {cache}: File exists; "
        "the download needs 1 GB of disk; FLINK_HA_SIDECAR_CACHE names another folder"
    )


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Our own variable, else the XDG folder, else the one below the home folder."""
    homes = {
        name: tmp_path / name / folder
        for name, folder in (("own", ""), ("xdg", "flink-ha-sidecar"), ("home", ".cache/flink-ha-sidecar"))
    }
    for home in homes.values():
        (home / f"flink-{VERSION}").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("FLINK_HA_SIDECAR_CACHE", str(tmp_path / "own"))
    flink: Callable[[], Path] = lambda: flink_home(VERSION, lambda _line: None)  # noqa: E731 — asked three times
    assert flink() == homes["own"] / f"flink-{VERSION}"
    monkeypatch.delenv("FLINK_HA_SIDECAR_CACHE")
    assert flink() == homes["xdg"] / f"flink-{VERSION}"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert flink() == homes["home"] / f"flink-{VERSION}"
