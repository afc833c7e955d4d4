"""Packages of PyPI that tests use for a file in them, and that are no dependencies: in the user's cache, checked against a hash."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from sidecar.lab.distribution import cache_folder

_FETCH_SECONDS: Final = 600.0


def find_package(name: str, version: str, lock: Path) -> Path:
    """The folder with the package that `lock` names, without what it depends on. Fetched once."""
    home = cache_folder() / f"{name}-{version}"
    if not home.is_dir():
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{home.name}.", dir=cache_folder()) as folder:
            options = ("--no-deps", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--require-hashes")
            command = (
                sys.executable,
                "-m",
                "pip",
                "install",
                *options,
                "--target",
                f"{folder}/{name}",
                "-r",
                str(lock),
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
            assert done.returncode == 0, f"no {name} to test with: {done.stderr}"
            if not home.is_dir():  # else another process was faster
                Path(folder, name).rename(home)
    return home
