r"""`audit shell`: many questions to the audit log, with one start of Spark. Statements end with `;`, commands begin with `\`."""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Final, TextIO, TypeVar

from msgspec.structs import replace
from pyspark.sql import SparkSession

from sidecar.audit.ask.registration import RecentLeadership, register_views
from sidecar.audit.ask.sql import OUTPUTS, Output, OwnTable, QueryResult, render, run_sql
from sidecar.audit.audit_error import JVM_ENDED, AuditError, StoppedError, failing_to
from sidecar.audit.log.audit_log import audit_folder
from sidecar.audit.spark.spark_session import own_session
from sidecar.audit.views.catalog import catalog, comments
from sidecar.core.sanitize import clean, printable

HELP: Final = r"""SELECT …;     any query, over as many lines as you like, up to the semicolon
\d            the tables and views
\d NAME       what one is about, and its columns
\x            a line for each value instead of a line for each row, and back
\o FORMAT     table, vertical, json or csv
\timing       how long each answer took, and not any more
\q            leave
"""
_T = TypeVar("_T")
_LEAVE: Final = ("\\q", "exit", "quit")
_POLL_SECONDS: Final = 0.1
_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*(?:'|\Z) | "(?:[^"\\]|\\.)*(?:"|\Z) | `[^`]*(?:`|\Z) | (?P<comment>--[^\n]* | /\*.*?\*/) | /\*.*\Z | (?P<end>;)""",
    re.VERBOSE | re.DOTALL,
)
"""What a semicolon may stand in without ending a statement, up to the end of the text if it is not closed, and one that ends it."""


def split(text: str) -> list[str]:
    """The complete statements of a text, without their semicolons, and last what follows them."""
    ends = [token.start() for token in _TOKEN.finditer(text) if token["end"]]
    return [text[begin:end] for begin, end in zip([0, *(end + 1 for end in ends)], [*ends, None], strict=True)]


def is_blank(text: str) -> bool:
    """Whether there is nothing in it but white space and complete comments."""
    return not _TOKEN.sub(lambda token: "" if token["comment"] else token[0], text).strip()


def is_complete(text: str) -> bool:
    """Whether a text can be executed, or needs another line."""
    return text.lstrip().startswith("\\") or text.strip() in _LEAVE or is_blank(split(text)[-1])


class Shell:
    """Executes statements and commands. Answers go to `answers`, everything else to `messages`."""

    def __init__(
        self,
        spark: SparkSession,
        audit: str,
        output: Output,
        answers: TextIO,
        messages: TextIO,
        own_tables: Sequence[OwnTable] = (),
    ) -> None:
        """Raises AuditError when there is no audit log at `audit`."""
        with failing_to(f"open the audit log {audit}"):
            audit_folder(spark, audit, "open the audit log")
        self.failed = False
        """Whether anything failed."""
        self.over = False
        """Whether a command has ended it."""
        self._spark, self._audit, self._output = spark, audit, output
        self._answers, self._messages = answers, messages
        self._own_tables = own_tables
        self._timing = False
        self._pending = ""
        self._recent = RecentLeadership()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="query")

    def run(self, lines: Iterable[str]) -> None:
        """Execute lines until they end or tell to leave. The last statement may lack its semicolon."""
        for line in lines:
            self.execute(line)
            if self.over:
                return
        last = self._pending.strip()
        self.execute("\n;")
        if not is_blank(self._pending):
            self._fail(f"the last statement is not complete: {clean(last)}")

    def execute(self, text: str) -> None:
        """Execute a command, or the statements that are complete with this text. An error is one line, and `failed`.

        Raises KeyboardInterrupt once an interrupted query is cancelled, and AuditError when Spark has died.
        """
        if is_blank(self._pending) and (text.lstrip().startswith("\\") or text.strip() in _LEAVE):
            self._pending = ""
            self._command(text.strip())
            return
        *complete, self._pending = split(self._pending + text)
        for statement in complete:
            if not is_blank(statement):
                self._query(statement)

    def columns(self, names: Collection[str]) -> dict[str, list[tuple[str, str, str]]]:
        """The columns of these tables and views: names, types and comments."""
        session = own_session(self._spark)
        register_views(session, self._audit, names)
        return {
            name: [
                (field.name, field.dataType.simpleString(), comments(name).columns[field.name])
                for field in session.table(name).schema
            ]
            for name in names
        }

    def _command(self, line: str) -> None:
        name, _, argument = line.partition(" ")
        match name, argument.strip().removesuffix(";"):
            case (("\\q" | "exit" | "quit"), _):
                self.over = True
            case (("\\?" | "\\h" | "\\help"), _):
                self._messages.write(HELP)
            case "\\d", "":
                own = [(table.name, "file", str(table.file)) for table in self._own_tables]
                self._answer(lambda: _listing(("name", "kind", "about"), [*catalog(), *own]))
            case "\\d", table:
                self._describe(table)
            case "\\timing", "":
                self._timing = not self._timing
                self._say(f"Timing is {'on' if self._timing else 'off'}.")
            case "\\x", "":
                self._choose_output("table" if self._output == "vertical" else "vertical")
            case "\\o", output:
                self._choose_output(output)
            case _:
                self._fail(f"there is no command {clean(line)}; \\? lists them")

    def _describe(self, table: str) -> None:
        name = table.lower()
        if name in {own.name for own in self._own_tables}:
            self._query(f"DESCRIBE {table}")
        elif name in {relation.name for relation in catalog()}:
            self._say(comments(name).about)
            self._answer(lambda: _listing(("column", "type", "comment"), self.columns([name])[name]))
        else:
            self._fail(f"there is no table or view {clean(table)}; \\d lists them")

    def _query(self, statement: str) -> None:
        self._answer(partial(run_sql, self._spark, self._audit, statement, self._recent, self._own_tables))

    def _choose_output(self, name: str) -> None:
        if output := next((output for output in OUTPUTS if output == name), None):
            self._output = output
            self._say(f"Output is {output}.")
        else:
            self._fail(f"\\o needs one of {', '.join(OUTPUTS)}")

    def _answer(self, ask: Callable[[], QueryResult]) -> None:
        began = time.monotonic()
        try:
            self._cancellable(ask)
        except AuditError as error:
            self._recent.forget()
            if JVM_ENDED in str(error):
                raise
            self._fail(str(error))
        if self._timing:
            self._say(f"Time: {time.monotonic() - began:.3f} s")

    def _cancellable(self, ask: Callable[[], QueryResult]) -> None:
        """Write an answer, in a thread that Ctrl-C does not interrupt: an interrupted conversation with the JVM could not be continued."""
        cancelled = threading.Event()

        def work() -> None:
            result = ask()
            render(replace(result, rows=_uncancelled(cancelled, result.rows)), self._output, self._answers)
            self._answers.flush()

        working = self._worker.submit(work)
        try:
            while not wait([working], _POLL_SECONDS).done:  # a signal does not end a wait without a limit
                pass
        except KeyboardInterrupt:
            cancelled.set()
            while not wait([working], _POLL_SECONDS).done:
                self._spark.sparkContext.cancelAllJobs()  # again, because a query may begin another one
            with suppress(AuditError):
                working.result()
            self._say("Cancelled.")
            raise
        working.result()

    def _say(self, line: str) -> None:
        print(printable(line), file=self._messages, flush=True)

    def _fail(self, problem: str) -> None:
        self.failed = True
        self._say(problem)


def _uncancelled(cancelled: threading.Event, rows: Iterator[_T]) -> Iterator[_T]:
    for row in rows:
        if cancelled.is_set():
            raise StoppedError("cancelled")
        yield row


def _listing(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> QueryResult:
    return QueryResult(columns, [False] * len(columns), (list(row) for row in rows))
