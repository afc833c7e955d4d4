"""Which of Java's compilers compile Spark in a JVM on this machine (docs/adr/0039-compilers.md)."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_LARGE_BYTES: Final = 20_000_000
_LARGE_FILES: Final = 10_000
_FIRST: Final = "-XX:TieredStopAtLevel=1"
_DIRECTIVES: Final = Path(__file__).with_name("compiler_directives.json")


def options(*, large: bool) -> str:
    """The options of a JVM that reads much (`large`) or little, quoted as in a shell.

    Java's first compiler alone is best for most runs, which are short: half of their CPU time would be spent on compiling code that hardly
    runs. But it calls native code for each copy in memory and for each thread-local variable. In a large run the second compiler compiles
    these few methods, which `compiler_directives.json` names. It needs counters in all code, which cost a second of CPU time.
    """
    # The code does not fit into the 48 MB that Java reserves for the first compiler alone: a long run would compile it again and again.
    selected = f"-XX:+UnlockDiagnosticVMOptions {shlex.quote(f'-XX:CompilerDirectivesFile={_DIRECTIVES}')}"
    return f"{selected if large else _FIRST} -XX:ReservedCodeCacheSize=240m"


def is_large(*urls: str) -> bool:
    """Whether there is much to read at these URLs. So it is taken to be where it cannot be seen: not in a folder on this machine."""
    folders = [_folder(url) for url in urls]
    if None in folders:
        return True
    left = _LARGE_BYTES
    for number, size in enumerate(size for folder in folders if folder for size in _sizes(folder)):
        left -= size
        if left < 0 or number >= _LARGE_FILES:
            return True
    return False


def _folder(url: str) -> str | None:
    """The folder on this machine; None if it is elsewhere."""
    if url.startswith("file:"):
        return unquote(url.removeprefix("file:").removeprefix("//"))
    return None if "://" in url else url


def _sizes(folder: str) -> Iterator[int]:
    """The sizes of the files in a folder and below; none if it does not exist."""
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.stat(f"{parent}/{name}").st_size  # noqa: PTH116  os.walk gives names, not Paths
            except OSError:
                continue
