"""Folders and files: those of whoever runs a command (XDG base directories), the volume that a folder is on, and a file that is written
whole."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Final

_NAME: Final = "flink-ha-sidecar"


def cache_folder() -> Path:
    """The folder for data that can be made again: $FLINK_HA_SIDECAR_CACHE, else $XDG_CACHE_HOME/flink-ha-sidecar, else
    ~/.cache/flink-ha-sidecar."""
    if folder := os.environ.get("FLINK_HA_SIDECAR_CACHE"):
        return Path(folder).expanduser().absolute()
    return _base("XDG_CACHE_HOME", ".cache") / _NAME


def state_folder() -> Path:
    """The folder for data that is kept between runs, like a history: $XDG_STATE_HOME/flink-ha-sidecar, else
    ~/.local/state/flink-ha-sidecar."""
    return _base("XDG_STATE_HOME", ".local/state") / _NAME


def _base(variable: str, in_home: str) -> Path:
    folder = os.environ.get(variable)
    return Path(folder) if folder else Path(os.path.expanduser("~")) / in_home  # noqa: PTH111  Path.home fails for a user without one


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


def write_durably(
    file: Path, content: bytes, mode: int, suffix: str, before_rename: Callable[[], object] | None = None
) -> None:
    """Write `content` to `.NAME.RANDOM` + `suffix`, sync it, rename it to `file` and sync the folder. Raises OSError."""
    # Another user of the folder can neither guess the temporary name nor make us follow a link.
    temporary = file.with_name(f".{file.name}.{token_hex(8)}{suffix}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        if before_rename:
            before_rename()
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
