"""Evidence items as the capturing process returns them: JSON that fits `sidecar.core.captures.EvidenceItem`. Imports very little."""

import hashlib
import re
from pathlib import Path
from typing import Any, Final

from sidecar.core.sanitize import clean
from sidecar.runtime.folders import write_durably

CAPTURED: Final = "captured"
ABSENT: Final = "absent"
REFUSED: Final = "refused"
FAILED: Final = "failed"

ENDED: Final = "the process has ended"

UNFINISHED_SUFFIX: Final = ".part"
"""The suffix of an unfinished file. Its name begins with a dot."""

_MOST_CHARACTERS: Final = 500
"""The most characters of a recorded text."""
_CONTROLS: Final = re.compile("[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")


class NotCapturedError(Exception):
    """Why something was not captured: `outcome` is one of the above, the text one line for operators."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


def evidence_item(
    kind: str, subject: str, outcome: str, detail: str | None = None, **attributes: object
) -> dict[str, Any]:
    """An item without a file. Attributes that are None are left out."""
    return {
        "kind": kind,
        "subject": clean(subject, _MOST_CHARACTERS),
        "outcome": outcome,
        "detail": clean(detail, _MOST_CHARACTERS) if detail else None,
        "attributes": {name: clean(value, _MOST_CHARACTERS) for name, value in attributes.items() if value is not None},
    }


class EvidenceFolder:
    """Writes the files of one request: `folder`/`name`-KIND-NUMBER.txt. `name`, EPISODE/OCCASION or longer, is a safe path."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = Path(folder)
        self._name = name

    def save(self, kind: str, number: int, subject: str, text: str, **attributes: object) -> dict[str, Any]:
        """Write the text to a file. Returns its item; FAILED and without a file where it cannot be written."""
        # The file is read in a terminal, which the name of a thread must not control.
        content = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text).encode()
        name = f"{self._name}-{kind}-{number}.txt"
        file = self._folder / name
        try:
            for folder in (file.parent.parent, file.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(file, content, 0o600, UNFINISHED_SUFFIX)
        except OSError as error:
            problem = f"could not write {file}: {error.strerror or error}"
            return evidence_item(kind, subject, FAILED, problem, **attributes)
        saved = {"file": name, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        return evidence_item(kind, subject, CAPTURED, None, **attributes) | saved
