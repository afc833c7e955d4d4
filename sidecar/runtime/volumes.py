"""Finds the volume of a pod that a folder is on, as far as the kernel shows it to a container."""

import os
import re
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")

_EMPTY_DIR: Final = re.compile(r"/volumes/kubernetes\.io~empty-dir/([^/]+)(?:/|$)")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def empty_dir(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """The name of the `emptyDir` volume that holds `folder`: it is deleted with its pod. None: another volume, or not known.

    An `emptyDir` in memory is not recognised.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    real, root, longest = Path(os.path.realpath(folder)), "", -1
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 4 and len(fields[4]) >= longest and real.is_relative_to(_unescaped(fields[4])):
            root, longest = _unescaped(fields[3]), len(fields[4])  # what was mounted last covers what was before
    match = _EMPTY_DIR.search(root)
    return match[1] if match else None


def _unescaped(path: str) -> str:
    return _OCTAL.sub(lambda code: chr(int(code[1], 8)), path)
