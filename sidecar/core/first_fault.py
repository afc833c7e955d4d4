"""The first fault at the end of a Flink log: what is logged after it are consequences. The fatal error, if there is one that says why.

The log is untrusted, and its layout is the operator's choice: Flink's own, JSON, another one, or none.
"""

import re
from typing import Final

from sidecar.core.log_entries import EXCEPTION, EXHAUSTED, MOST_OF_A_LINE, LogEntry, entries
from sidecar.core.masking import masked
from sidecar.core.moment import SECOND
from sidecar.core.process_end import LogEnd
from sidecar.core.sanitize import clean

MOST_CHARACTERS: Final = 256 << 10
"""Read of the end of a log."""
MOST_SHOWN: Final = 300
_WINDOW: Final = 600 * SECOND
"""An error that is older than that, by the log's own times, is of something else. A JVM may need a minute to die of a full heap."""

_START: Final = re.compile(r"\bStarting \w{0,60}(?:Entrypoint|EntryPoint|ClusterDriver)\b.{0,20}\(Version: ")
"""The first line of a JobManager's run, in every version of Flink."""
_SHUTDOWN: Final = re.compile(
    r"RECEIVED SIGNAL|application status \w+\. Diagnostics Cluster entrypoint has been closed"
)
"""The message with which an ordered shutdown begins. Errors after it are no fault."""
_FATAL_INFO: Final = re.compile(r"down with application status (?:FAILED|UNKNOWN)\. Diagnostics (?!Cluster entrypoint)")

_EXIT_INFO: Final = re.compile(r"Terminating cluster entrypoint process \S{1,200} with exit code (?!0\b)")
_ERRORS: Final = frozenset(
    {"E", "ERR", "ERROR", "F", "FTL", "FATAL", "SEVERE", "CRITICAL", "CRIT", "ALERT", "EMERG", "EMERGENCY"}
)
_FATAL_LEVELS: Final = frozenset({"F", "FTL", "FATAL"})
_FATAL: Final = re.compile(
    r"^\W{0,3}FATAL\b|[Ff]atal error occurred|Could not start cluster entrypoint|with exit code \d"
)
"""Messages after which Flink ends its process. Only what is below them says why."""

_DECISIVE: Final = re.compile(
    r"OutOfMemoryError|StackOverflowError|No space left on device|Disk quota exceeded|Too many open files"
    r"|Could not retrieve (?:checkpoint|(?:the )?(?:submitted )?(?:JobGraph|ExecutionPlan))|unable to create native thread"
)
"""Lines of a chain of exceptions that say more than its last one."""
_ERROR: Final = re.compile(r"java\.lang\.(?:OutOfMemory|StackOverflow)Error")
_OF_OTHERS: Final = re.compile(
    r"\.rest\.handler\.|\.webmonitor\.|\.executiongraph\.|\.runtime\.checkpoint\."
    r"|\.curator\.|\.(?:LeaderLatch|ConnectionState) | switched from "
)
"""Errors that are no fault of this process: a bad request, a task that failed on a TaskManager, what Curator tries again (a latch whose
node is gone, a ZooKeeper without SASL). Where Curator gives up, Flink's own fatal error says so."""
_CONSEQUENCE: Final = re.compile(
    r"Fencing|Connection refused|ConnectException|Disassociated|Association with remote system|[Ss]hut(?:ting)? ?down|hook\b"
    r"|\b(?:Stopp|Clos|Terminat)(?:ing|ed)\b|RejectedExecution|InterruptedException|TimeoutException|timed out|heartbeat"
    r"|has been closed|already closed|revoked leadership"
)


def _is_error(entry: LogEntry) -> bool:
    if entry.level in _ERRORS or _FATAL_INFO.search(entry.message):
        return True
    return bool(_EXIT_INFO.search(entry.message) and _exceptions_of(entry))


def _exceptions_of(entry: LogEntry) -> list[str]:
    return [line for line in (entry.message, *entry.lines) if EXCEPTION.match(line)]


def _decisive(entry: LogEntry) -> str:
    """The line that names the problem best; the message itself if it does, or if there is no exception."""
    chain = _exceptions_of(entry)
    lines = (line for line in (entry.message, *chain) if _DECISIVE.search(line))
    return next(lines, chain[-1] if chain else entry.message)


def _is_exhausted(entry: LogEntry) -> bool:
    """Whether the entry reports an exhausted resource. That is never the consequence of another error, so it is the first fault even if
    another kind of error was logged before."""
    return bool(EXHAUSTED.search(_decisive(entry)))


def _names_kind(entry: LogEntry) -> bool:
    """Whether it says what is exhausted, as in `OutOfMemoryError: Metaspace`."""
    return "Error: " in _decisive(entry)


def _is_fatal(entry: LogEntry) -> bool:
    """Whether the process ended itself because of this entry, and the entry says why."""
    is_last_word = _FATAL.search(entry.message)
    says_why = bool(_exceptions_of(entry)) if is_last_word else entry.level in _FATAL_LEVELS
    return says_why and not _CONSEQUENCE.search(_decisive(entry))


def log_end(source: str, text: str) -> LogEnd:
    """The facts about the last run in this end of a log."""
    text = text[-MOST_CHARACTERS:]
    logged = [*entries(text)]
    starts = [number for number, entry in enumerate(logged) if _START.search(entry.message)]
    run = logged[starts[-1] :] if starts else logged
    ended_at = max((entry.at for entry in run if entry.at is not None), default=None)
    end = next((number for number, entry in enumerate(run) if _SHUTDOWN.search(entry.message)), len(run))
    last = _masked_line(text.rstrip().rpartition("\n")[2])
    fault = _first_error([entry for entry in run[:end] if _is_error(entry)], ended_at)
    if fault is None:
        return LogEnd(source, None, last_line=last)
    age = None if fault.at is None or ended_at is None else ended_at - fault.at
    return LogEnd(source, _spelled(fault), age, _exception_of(fault), last)


def _spelled(fault: LogEntry) -> str:
    """The message, and the line of its exceptions that says most."""
    line, said = _decisive(fault), fault.message.rstrip(" .:")
    return _masked_line(line if line == fault.message or not said else f"{said}: {line.removeprefix('Caused by: ')}")


def _exception_of(fault: LogEntry) -> str | None:
    line = _decisive(fault)
    if error := _ERROR.search(line):
        return error[0]
    exception = EXCEPTION.match(line)
    return exception["name"] if exception else None


def begins_run(text: str) -> bool:
    """Whether a JobManager started in this part of a log."""
    return bool(_START.search(text))


def earlier_runs(text: str) -> str:
    """The part of a log before its last run. Empty: the last run does not begin in `text`."""
    begun = [*_START.finditer(text)]
    return text[: text.rfind("\n", 0, begun[-1].start()) + 1] if begun else ""


def _first_error(errors: list[LogEntry], ended_at: int | None) -> LogEntry | None:
    """The error to report: an exhausted resource; else the last fatal error that says why; else the first error near the end that is no
    known consequence."""
    own = [
        entry
        for entry in errors
        if (ended_at is None or entry.at is None or entry.at >= ended_at - _WINDOW)
        and not _OF_OTHERS.search(f".{entry.logger} {entry.message}")
    ]
    exhausted = [entry for entry in own if _is_exhausted(entry)]
    fatal = [entry for entry in reversed(own) if _is_fatal(entry)]
    causes = [entry for entry in own if not _CONSEQUENCE.search(f"{entry.message} {_decisive(entry)}")]
    return next(iter([*filter(_names_kind, exhausted), *exhausted, *fatal, *causes, *own]), None)


def _masked_line(line: str) -> str:
    return clean(masked(line[:MOST_OF_A_LINE].strip()), MOST_SHOWN)
