"""The prompt of `audit shell` on a terminal: history, completion, statements over several lines."""

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from pyspark.sql import SparkSession

from sidecar.audit.ask.query_check import FUNCTIONS
from sidecar.audit.ask.shell import Shell, is_complete
from sidecar.audit.ask.sql import OUTPUTS
from sidecar.audit.log.tables import BASE_VIEWS, with_event_date
from sidecar.audit.views.catalog import catalog
from sidecar.core.sanitize import printable
from sidecar.runtime.folders import state_folder

_PROMPT: Final = "audit> "
_CONTINUATION: Final = "    -> "
_HISTORY: Final = "audit_history"
_COMMANDS: Final = ("\\d", "\\o", "\\q", "\\timing", "\\x", "\\?")
_WORDS: Final = re.findall(
    r"\w+",
    """
    ALL AND AS ASC BETWEEN BY CASE CAST COUNT CROSS DESC DESCRIBE DISTINCT ELSE END EXCEPT EXISTS EXPLAIN FALSE FROM FULL GROUP HAVING IN
    INNER INTERSECT INTERVAL IS JOIN LATERAL LEFT LIKE LIMIT NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER PARTITION RIGHT SELECT SHOW TABLE
    THEN TIMESTAMP TRUE UNION USING VALUES WHEN WHERE WINDOW WITH
    """,
)
_WORD: Final = re.compile(r"\\?\w+|\\")


def converse(shell: Shell, spark: SparkSession, greeting: str) -> None:
    r"""Read from the terminal and execute, until `\q` or Ctrl-D. Ctrl-C cancels what is typed, or the running query.

    Raises AuditError when Spark has died.
    """
    names = _Names(shell, spark)
    threading.Thread(target=names.learn, daemon=True, name="completion").start()
    session = PromptSession[str](
        history=_history(),
        completer=names,
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=_CONTINUATION,
        key_bindings=_keys(),
    )
    print(printable(greeting))  # noqa: T201  to the terminal
    while not shell.over:
        try:
            shell.execute(session.prompt(_PROMPT) + "\n")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _history() -> History:
    """In a file that only its owner can read; in memory, where there is no place for one."""
    folder = state_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / _HISTORY
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


class _Names(Completer):
    """Completes commands, tables, views, columns, functions and words of SQL."""

    def __init__(self, shell: Shell, spark: SparkSession) -> None:
        self._shell, self._spark = shell, spark
        self._views = [relation.name for relation in catalog()]
        columns = {field.name for schema in BASE_VIEWS.values() for field in with_event_date(schema)}
        functions = {name for name in FUNCTIONS if name.isidentifier() and name.upper() not in _WORDS} - columns
        self._words: Sequence[str] = [*self._views, *sorted(columns), *_WORDS, *sorted(functions)]

    def learn(self) -> None:
        """Add what only Spark knows: the columns of views. Meanwhile Spark warms up for the first query."""
        with suppress(Exception):  # without it less is completed, and whatever is wrong, a query reports it
            columns = {name for view in self._shell.columns(self._views).values() for name, *_ in view}
            self._words = [*self._words, *sorted(columns.difference(self._words))]

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002  prompt_toolkit's
        """The words that begin as the one at the cursor, in either case."""
        begun = document.get_word_before_cursor(pattern=_WORD)
        for word in self._fitting(document.text_before_cursor.lstrip()):
            if word.lower().startswith(begun.lower()):
                yield Completion(word, start_position=-len(begun))

    def _fitting(self, before: str) -> Iterator[str]:
        command, blank, _ = before.partition(" ")
        if command.startswith("\\"):
            arguments = {"\\d": self._views, "\\o": OUTPUTS}
            yield from arguments.get(command, ()) if blank else _COMMANDS
        else:
            yield from self._words
