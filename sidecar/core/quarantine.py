"""Keeps what raised an error out of the rest of that step, so that all else goes on. It is tried again in the next step."""

from types import TracebackType
from typing import Final, Self

from msgspec import Struct


class Quarantined(Struct, frozen=True):
    """A part of a step that raised an error."""

    name: str
    """`cluster orders`, `rule FlinkNoLeader of cluster orders`, …: untrusted text."""
    error: Exception


class Quarantine:
    """Collects what is left out of one step."""

    def __init__(self, *, strict: bool = False) -> None:
        """`strict`: nothing is left out, errors are raised."""
        self.left_out: list[Quarantined] = []
        self._strict = strict

    def guard(self, *words: object) -> "Guard":
        """A context manager that leaves the rest of its block out if the block raises. `words`: the words of its name."""
        return Guard(self, words)

    def leave_out(self, error: Exception, *words: object) -> None:
        """Note an error of one round of a loop, or raise it. As a guard, without its calls: most rounds raise nothing."""
        if not self.add(words, error):
            raise error

    def add(self, words: tuple[object, ...], error: Exception) -> bool:
        """Note an error. False: it is to be raised."""
        self.left_out.append(Quarantined(" ".join(map(str, words)), error))
        return not self._strict


class Guard:
    """One block of a step."""

    __slots__ = ("_quarantine", "_words", "raised")

    def __init__(self, quarantine: Quarantine, words: tuple[object, ...]) -> None:
        self._quarantine = quarantine
        self._words = words
        self.raised = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> bool:
        self.raised = isinstance(error, Exception)
        return isinstance(error, Exception) and self._quarantine.add(self._words, error)


STRICT: Final = Quarantine(strict=True)
"""Leaves nothing out."""
