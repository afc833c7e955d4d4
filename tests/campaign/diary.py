"""What was done to the system, as it was done: the truth that the judge holds everything else against."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Diary:
    """Appends facts to a file, one JSON object a line. Safe to use from several threads."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def note(self, fact: str, **details: object) -> None:
        """A fact, and when: `at` is in seconds since the epoch."""
        line = json.dumps({"at": time.time(), "fact": fact, **details})
        with self._lock, self._file.open("a") as file:
            file.write(line + "\n")

    @contextmanager
    def noting(self, fact: str, **details: object) -> Iterator[None]:
        """A fact that takes a while: `since` is when it began, `at` when it was done. If it fails it is not noted."""
        since = time.time()
        yield
        self.note(fact, since=since, **details)
