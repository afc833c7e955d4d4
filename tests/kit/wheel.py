"""Packages of PyPI that tests use and the project does not depend on: in the user's cache, once, checked against a hash."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from sidecar.runtime.folders import cache_folder
from tests import ROOT

_FETCH_SECONDS: Final = 600.0


def unpacked(name: str, version: str) -> Path:
    """The folder with the package of `tests/kit/NAME.lock`, without what it depends on."""
    home = cache_folder() / f"{name}-{version}"
    if not home.is_dir():
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{home.name}.", dir=cache_folder()) as folder:
            options = ("--no-deps", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--require-hashes")
            lock = ROOT / "tests" / "kit" / f"{name}.lock"
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
