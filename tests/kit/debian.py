"""Programs from Debian's packages, which apt fetches into the user's cache. Nothing is installed, no service starts. No root needed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from sidecar.runtime.folders import cache_folder

_FETCH_SECONDS: Final = 120.0
_FOLDERS: Final = ("usr/bin", "usr/sbin")


class PackageError(Exception):
    """A program is not there, and its package could not be had."""


def find_tool(name: str, package: str, *, dependencies: bool = False) -> Path:
    """A program of PATH, else that of Debian's package, unpacked below the user's cache. Raises PackageError.

    `dependencies`: with the packages that it needs and this machine lacks, see `libraries`.
    """
    if installed := shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])):
        return Path(installed)
    home = cache_folder() / package.removeprefix("prometheus-")
    places = [home / folder / name for folder in _FOLDERS]
    if not any(place.is_file() for place in places):
        try:
            _fetch(package, home, dependencies=dependencies)
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or str(error)
            last = (output.strip().splitlines() or [""])[-1]
            raise PackageError(
                f"{name} is not in PATH, and {package} could not be had from apt ({last}): run apt-get install {package}"
            ) from error
    return next(place for place in places if place.is_file())


def libraries(tool: Path) -> dict[str, str]:
    """The environment in which an unpacked program finds the libraries that were unpacked with it."""
    home = tool.parents[2]
    if not home.is_relative_to(cache_folder()):
        return {}
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, sorted(home.rglob("lib/*-linux-*"))))}


def _fetch(package: str, home: Path, *, dependencies: bool) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{home.name}.", dir=home.parent) as staging:
        folder = Path(staging)
        (folder / "partial").mkdir()
        download = ["download", "-qq", package]
        if dependencies:
            aside = ("-o", f"Dir::Cache::archives={folder}", "-o", "Debug::NoLocking=1")
            download = ["install", "-qq", "--yes", "--no-install-recommends", "--download-only", *aside, package]
        try:
            _run("apt-get", *download, folder=folder)
        except subprocess.CalledProcessError:  # nobody has asked apt for its lists yet: they are had aside
            (folder / "lists" / "partial").mkdir(parents=True)
            lists = ("-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache")
            _run("apt-get", *lists, "update", "-qq", folder=folder)
            _run("apt-get", *lists, *download, folder=folder)
        for archive in folder.glob("*.deb"):
            _run("dpkg", "-x", archive.name, "unpacked", folder=folder)
        try:
            (folder / "unpacked").rename(home)
        except OSError:
            if not home.is_dir():  # else somebody else was faster
                raise


def _run(*command: str, folder: Path) -> None:
    subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        timeout=_FETCH_SECONDS,
        check=True,
    )
