"""Programs from Debian's packages that judge what we say: Alertmanager's own `amtool` for routes, Prometheus' `promtool` for metrics."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from sidecar.user_folders import cache_folder

_FETCH_SECONDS: Final = 120.0
_ASK_SECONDS: Final = 20.0


class AmtoolError(Exception):
    """There is no judge, or it refuses to judge."""


def find_amtool() -> Path:
    """`amtool`: see `find_tool`. Raises AmtoolError."""
    return find_tool("amtool", "prometheus-alertmanager")


def find_tool(name: str, package: str) -> Path:
    """A program of PATH, else that of Debian's package: fetched by apt into the user's cache and unpacked there. No root needed.

    Nothing is installed, so no service is started. Raises AmtoolError.
    """
    if found := shutil.which(name):
        return Path(found)
    home = cache_folder() / package.removeprefix("prometheus-")
    kept = home / "usr" / "bin" / name
    if not kept.is_file():
        try:
            _fetch(package, home)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            last = (said.strip().splitlines() or [""])[-1]
            raise AmtoolError(
                f"{name} is not in PATH, and {package} could not be had from apt ({last}): run apt-get install {package}"
            ) from error
    return kept


def receivers(amtool: Path, config: Path, labels: list[str]) -> str:
    """Who gets an alert with these labels (`name="value"`), as amtool prints it. Raises AmtoolError: it refuses the file."""
    command = [str(amtool), "config", "routes", "test", f"--config.file={config}", *labels]
    # It greets with the Alertmanager that it would ask without a file, on stderr.
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    if answer.returncode != 0:
        raise AmtoolError(f"{config}: {answer.stderr}")
    return answer.stdout.strip()


def _fetch(package: str, home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{home.name}.", dir=home.parent) as staging:
        folder = Path(staging)
        try:
            _run("apt-get", "download", "-qq", package, folder=folder)
        except subprocess.CalledProcessError:  # nobody has asked apt for its lists yet: they are had aside
            (folder / "lists" / "partial").mkdir(parents=True)
            aside = ("-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache")
            _run("apt-get", *aside, "update", "-qq", folder=folder)
            _run("apt-get", *aside, "download", "-qq", package, folder=folder)
        (archive,) = folder.glob(f"{package}_*.deb")
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
