"""Downloads Flink's jars, once per version: the Python package `apache-flink-libraries` contains the real distribution."""

import fcntl
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from sidecar.runtime.folders import cache_folder
from tests.lab.lab_error import LabError
from tests.lab.processes import Process

_FETCH_SECONDS = 3600.0
_PROGRESS_SECONDS = 5.0
_POLL_SECONDS = 0.2
_COPY_BYTES = 1 << 20
_PACKAGE_SIZE = re.compile(rb"\.(?:whl|tar\.gz) \((\d+)[.\d]* MB\)")


def flink_home(version: str, progress: Callable[[str], None]) -> Path:
    """The folder in the user's cache whose `lib/` contains the jars of that Flink version; downloads them if they are missing.

    The cache is $FLINK_HA_SIDECAR_CACHE, else $XDG_CACHE_HOME/flink-ha-sidecar, else ~/.cache/flink-ha-sidecar. The folder appears
    there complete or not at all; only one process downloads at a time. `progress` receives status lines. Raises LabError.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise LabError(f"{version!r} is no Flink version: give one like 2.3.0")
    cache = cache_folder()
    home = cache / f"flink-{version}"
    try:
        if not home.is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            with _one_at_a_time(cache, progress):
                if not home.is_dir():
                    _fetch(version, home, progress)
    except OSError as error:
        raise LabError(
            f"could not fetch Flink {version} into {cache}: {error.strerror or error}; "
            "the download needs 1 GB of disk; FLINK_HA_SIDECAR_CACHE names another folder"
        ) from error
    return home.resolve()  # an archive of Java's classes is valid for one path of their jars


@contextmanager
def _one_at_a_time(cache: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold the cache's lock: concurrent pip downloads fail, even of different versions. The kernel frees the lock of a dead process."""
    deadline = time.monotonic() + _FETCH_SECONDS
    with (cache / "lock").open("w") as lock:
        waiting = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LabError(
                        f"another process has been fetching into {cache} for {_FETCH_SECONDS / 60:g} minutes: end it"
                    ) from None
            if not waiting:
                progress("another process is fetching Flink: waiting for it")
                waiting = True
            time.sleep(_POLL_SECONDS)
        yield


def _fetch(version: str, home: Path, progress: Callable[[str], None]) -> None:
    for leftover in home.parent.glob(".*.partial"):  # interrupted downloads: we hold the lock, so none is in progress
        shutil.rmtree(leftover, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{home.name}.", suffix=".partial", dir=home.parent))
    try:
        (staging / "tmp").mkdir()
        archive = _download(version, staging, progress)
        progress(f"unpacking Flink {version}")
        _unpack(archive, staging / "home" / "lib")
        (staging / "home").rename(home)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _download(version: str, staging: Path, progress: Callable[[str], None]) -> Path:
    """Download the package with pip. Its temporary files are in `staging` too, so that `_download_state` can measure them."""
    downloaded = staging / "download"
    log = staging / "pip.log"
    options = ("--no-deps", "--no-cache-dir", "--no-input", "--progress-bar=off", "--disable-pip-version-check")
    package = f"apache-flink-libraries=={version}"
    command = (sys.executable, "-m", "pip", "download", *options, f"--dest={downloaded}", package)
    pip = Process("pip", command, log, environment=os.environ | {"TMPDIR": str(staging / "tmp")})
    started = reported = time.monotonic()
    progress(f"fetching Flink {version} with pip, once (200 to 330 MB)")
    pip.start()
    try:
        while pip.running:
            time.sleep(_POLL_SECONDS)
            if time.monotonic() - started > _FETCH_SECONDS:
                raise LabError(f"fetching Flink {version} took more than {_FETCH_SECONDS / 60:g} minutes")
            if time.monotonic() - reported > _PROGRESS_SECONDS:
                reported = time.monotonic()
                progress(_download_state(version, staging, log))
    finally:
        pip.kill()
    archives = list(downloaded.glob("apache?flink?libraries-*"))
    if pip.wait(0) or len(archives) != 1:
        raise LabError(f"pip could not fetch Flink {version} (package apache-flink-libraries): {pip.last_words()}")
    return archives[0]


def _download_state(version: str, staging: Path, log: Path) -> str:
    total = _PACKAGE_SIZE.search(log.read_bytes())
    # `Path.rglob` would raise if pip removes a folder meanwhile.
    largest = max((_size(Path(folder, name)) for folder, _, names in os.walk(staging) for name in names), default=0)
    of = f" ({int(total[1])} MB)" if total else ""
    if total and largest >= int(total[1]) * 1_000_000:
        return f"fetching Flink {version}{of}: pip prepares it"
    return f"fetching Flink {version}{of} … {largest / 1e6:.0f} MB"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # pip moved the file meanwhile
        return 0


def _unpack(archive: Path, lib: Path) -> None:
    """Copy the jars of the archive's lib folder (wheel: pyflink/lib, sdist: */deps/lib) into `lib`."""
    lib.mkdir(parents=True)
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for name in filter(_is_library, wheel.namelist()):
                    with wheel.open(name) as jar:
                        _copy(jar, lib / PurePosixPath(name).name)
        else:
            with tarfile.open(archive) as sdist:
                for member in sdist:
                    if member.isfile() and _is_library(member.name) and (packed := sdist.extractfile(member)):
                        with packed:
                            _copy(packed, lib / PurePosixPath(member.name).name)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise LabError(f"{archive.name} is damaged ({error}): try again") from error
    if not any(lib.glob("flink-dist*.jar")):
        raise LabError(
            f"{archive.name} contains no flink-dist jar: it is not a Flink distribution that the lab supports"
        )


def _is_library(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".jar" and path.parent.parts[-1:] == ("lib",) and path.parts[-3] in {"pyflink", "deps"}


def _copy(jar: IO[bytes], to: Path) -> None:
    with to.open("wb") as file:
        shutil.copyfileobj(jar, file, _COPY_BYTES)
