"""Pieces of evidence as the capturing process tells them: JSON that fits `sidecar.core.evidence.Piece`. Loads next to nothing."""

import hashlib
import os
import re
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from sidecar.core.sanitize import clean

CAPTURED: Final = "captured"
ABSENT: Final = "absent"
REFUSED: Final = "refused"
FAILED: Final = "failed"

PART: Final = ".part"
"""How the name of a file ends (and a dot begins it) that is not written yet."""

_MOST_CHARACTERS: Final = 500
"""Of a text that is recorded."""
_CONTROLS: Final = re.compile("[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")


class NotCapturedError(Exception):
    """Why something was not captured: `outcome` is one of the above, the text one line for people."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


def piece(kind: str, subject: str, outcome: str, detail: str | None = None, **attributes: object) -> dict[str, Any]:
    """A piece without a file. Attributes that are None are not known."""
    return {
        "kind": kind,
        "subject": clean(subject, _MOST_CHARACTERS),
        "outcome": outcome,
        "detail": clean(detail, _MOST_CHARACTERS) if detail else None,
        "attributes": {name: clean(value, _MOST_CHARACTERS) for name, value in attributes.items() if value is not None},
    }


class Shelf:
    """Where the files of one capture are written: `folder`/`name`-KIND-NUMBER.txt. `name`, EPISODE/OCCASION or longer, is safe."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = Path(folder)
        self._name = name

    def keep(self, kind: str, number: int, subject: str, text: str, **attributes: object) -> dict[str, Any]:
        """Write the text: the piece that has it in a file. Where it cannot be written: the piece without one, FAILED."""
        # Whoever looks at the file looks with a terminal: what a thread is called must not command it.
        content = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text).encode()
        file = f"{self._name}-{kind}-{number}.txt"
        try:
            _write(self._folder / file, content)
        except OSError as error:
            problem = f"could not write {self._folder / file}: {error.strerror or error}"
            return piece(kind, subject, FAILED, problem, **attributes)
        kept = {"file": file, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        return piece(kind, subject, CAPTURED, None, **attributes) | kept


def _write(file: Path, content: bytes) -> None:
    """Whole from the moment that it can be seen, and for our own eyes. Raises OSError."""
    for folder in (file.parent.parent, file.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Never through a link that somebody has put there, and under a name that nobody can have guessed.
    aside = file.with_name(f".{file.name}.{token_hex(8)}{PART}")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(file)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
