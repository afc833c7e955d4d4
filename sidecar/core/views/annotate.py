"""An operator's note about an episode, as a record."""

from typing import ClassVar, Final

from msgspec import Struct

from sidecar.core.errors import OperatorError
from sidecar.core.moment import Timestamp
from sidecar.core.records import Annotation, record_id
from sidecar.core.views.explain import Explanation

MOST_REASON: Final = 2000
MOST_AUTHOR: Final = 100


class NoteError(OperatorError):
    """A note that cannot be recorded."""

    exit_status: ClassVar[int] = 2


class Note(Struct, frozen=True):
    """One line of printable text each."""

    reason: str
    author: str | None
    planned: bool | None = None


def note(reason: str, author: str | None, *, planned: bool = False) -> Note:
    """The note as it is recorded: line breaks and tabs become spaces. Raises NoteError when it is empty, too long, or not printable."""
    by = None if author is None else _line("author", author, MOST_AUTHOR)
    return Note(_line("reason", reason, MOST_REASON), by, planned or None)


def annotation(explained: Explanation, noted: Note, at: Timestamp) -> Annotation:
    """The record of a note. The same note at another time is another record."""
    of = explained.episode or explained.transitions[0]
    return Annotation(
        id=record_id("annotation", explained.id, noted.author, noted.reason, at),
        cluster_id=of.cluster_id,
        external_labels=of.external_labels,
        store=of.store,
        observer=of.observer,
        observed_at=at,
        recorded_at=at,
        episode_id=explained.id,
        reason=noted.reason,
        author=noted.author,
        planned=noted.planned,
    )


def _line(part: str, text: str, most: int) -> str:
    line = " ".join(text.split())
    if not line:
        raise NoteError(f"the {part} of a note is empty: 1 to {most} characters are needed")
    if len(line) > most:
        raise NoteError(f"the {part} of a note has {len(line)} characters: at most {most} are recorded")
    if bad := next((character for character in line if not character.isprintable()), None):
        raise NoteError(
            f"the {part} of a note holds the control character U+{ord(bad):04X}: only printable text is recorded"
        )
    return line
