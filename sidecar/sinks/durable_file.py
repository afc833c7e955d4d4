"""Writing a file so that readers see all of it or nothing, and that it outlives a crash."""

import os
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex


def write(
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
