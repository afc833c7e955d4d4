"""The first fault at the end of a Flink log: what is logged after it are consequences.

The log is untrusted, and its layout is the operator's choice: Flink's own, JSON, another one, or none.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from sidecar.core.masking import masked
from sidecar.core.moment import SECOND
from sidecar.core.process_end import LogEnd
from sidecar.core.sanitize import clean

MOST_CHARACTERS: Final = 256 << 10
"""Read of the end of a log."""
MOST_SHOWN: Final = 300
_MOST_OF_A_LINE: Final = 2_000
_MOST_OF_AN_ENTRY: Final = 500
"""Lines."""
_WINDOW: Final = 600 * SECOND
"""An error that is older than that, by the log's own times, is of something else. A JVM may need a minute to die of a full heap."""

_LEVELS: Final = r"TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|SEVERE"
_TIME: Final = r"(?P<time>(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
_HEADER: Final = re.compile(rf"\[?(?:{_TIME}.{{0,120}}?)?(?<!\S)\[?(?P<level>{_LEVELS})\]?:?(?:\s+(?P<rest>.*))?$")
_LOGGER: Final = re.compile(
    r"(?:\[[^\]]{0,200}\]\s+)?(?P<logger>[\w.$-]{1,200})\s+(?:\S{0,200}\s+)?-\s+(?P<message>.*)"
)
_CONTINUED: Final = re.compile(r"\s|Caused by: |\.\.\. \d+ more|Suppressed: |$")
_EXCEPTION: Final = re.compile(
    r"(?:Caused by: |Exception in thread \"[^\"]{0,200}\" |Terminating due to |Aborting due to )?"
    r"(?P<name>(?:[A-Za-z_$][\w$]{0,100}\.){1,20}[A-Za-z_$][\w$]{0,100}(?:Exception|Error|Throwable|Failure)[\w$]{0,40})(?::|$)"
)
_CRASH: Final = re.compile(
    r"#\s+(A fatal error has been detected by|There is insufficient memory for) the Java Runtime"
)
_BARE: Final = re.compile(
    r"Exception in thread \"|Terminating due to |Aborting due to |Exception: \S{1,200} thrown from the Uncaught"
)
"""What a JVM itself prints, between the lines of the log."""

_START: Final = re.compile(r"\bStarting \w{0,60}(?:Entrypoint|EntryPoint|ClusterDriver)\b.{0,20}\(Version: ")
"""The first line of a JobManager's run, in every version of Flink."""
_SHUTDOWN: Final = re.compile(
    r"RECEIVED SIGNAL|application status \w+\. Diagnostics Cluster entrypoint has been closed"
)
"""From here on everything ends: no fault."""
_FATAL_INFO: Final = re.compile(r"down with application status (?:FAILED|UNKNOWN)\. Diagnostics (?!Cluster entrypoint)")

_DECISIVE: Final = re.compile(
    r"OutOfMemoryError|StackOverflowError|No space left on device|Disk quota exceeded|Too many open files"
    r"|Could not retrieve (?:checkpoint|(?:the )?(?:submitted )?(?:JobGraph|ExecutionPlan))|unable to create native thread"
)
"""Lines of a chain of exceptions that say more than its last one."""
_ERROR: Final = re.compile(r"java\.lang\.(?:OutOfMemory|StackOverflow)Error")
_EXHAUSTED: Final = re.compile(r"OutOfMemoryError|StackOverflowError|No space left on device|unable to create native")
"""Never the consequence of another error: such a fault is the first one even if another kind of error was logged before."""
_OF_OTHERS: Final = re.compile(
    r"\.rest\.handler\.|\.webmonitor\.|\.executiongraph\.|\.runtime\.checkpoint\.|\.ConnectionState\b.{0,20}Authentication failed"
    r"| switched from "
)
"""What is no fault of this process: a bad request, a task that failed on a TaskManager, a ZooKeeper without SASL."""
_CONSEQUENCE: Final = re.compile(
    r"Fencing|Connection refused|ConnectException|Disassociated|Association with remote system|[Ss]hut(?:ting)? ?down|hook\b"
    r"|\b(?:Stopp|Clos|Terminat)(?:ing|ed)\b|RejectedExecution|InterruptedException|TimeoutException|timed out|heartbeat"
    r"|has been closed|already closed|revoked leadership"
)


class _Entry(Struct):
    """One message of the log, with the lines below it."""

    level: str
    logger: str
    message: str
    at: int | None = None
    lines: list[str] = []

    @property
    def is_error(self) -> bool:
        return self.level in {"ERROR", "FATAL", "SEVERE"} or bool(_FATAL_INFO.search(self.message))

    def decisive(self) -> str:
        """The line that names the problem best; the message itself if it does, or if there is no exception."""
        chain = [line for line in (self.message, *self.lines) if _EXCEPTION.match(line)]
        lines = (line for line in (self.message, *chain) if _DECISIVE.search(line))
        return next(lines, chain[-1] if chain else self.message)

    def exhausted(self) -> bool:
        return bool(_EXHAUSTED.search(self.decisive()))

    def names_kind(self) -> bool:
        """Whether it says what is exhausted, as in `OutOfMemoryError: Metaspace`."""
        return "Error: " in self.decisive()


def log_end(source: str, text: str) -> LogEnd:
    """What the last run in this end of a log says."""
    text = text[-MOST_CHARACTERS:]
    entries = [*_entries(text)]
    starts = [number for number, entry in enumerate(entries) if _START.search(entry.message)]
    run = entries[starts[-1] :] if starts else entries
    ended_at = max((entry.at for entry in run if entry.at is not None), default=None)
    end = next((number for number, entry in enumerate(run) if _SHUTDOWN.search(entry.message)), len(run))
    last = _masked_line(text.rstrip().rpartition("\n")[2])
    fault = _first_error([entry for entry in run[:end] if entry.is_error], ended_at)
    if fault is None:
        return LogEnd(source, None, last_line=last)
    age = None if fault.at is None or ended_at is None else ended_at - fault.at
    return LogEnd(source, _spelled(fault), age, _exception_of(fault), last)


def _spelled(fault: _Entry) -> str:
    """The message, and the line of its exceptions that says most."""
    line, said = fault.decisive(), fault.message.rstrip(" .:")
    return _masked_line(line if line == fault.message or not said else f"{said}: {line.removeprefix('Caused by: ')}")


def _exception_of(fault: _Entry) -> str | None:
    line = fault.decisive()
    if error := _ERROR.search(line):
        return error[0]
    exception = _EXCEPTION.match(line)
    return exception["name"] if exception else None


def begins_run(text: str) -> bool:
    """Whether a JobManager started in this part of a log."""
    return bool(_START.search(text))


def before_last_run(text: str) -> str:
    """This part of a log without its last run. Empty: it has no beginning of one."""
    begun = [*_START.finditer(text)]
    return text[: text.rfind("\n", 0, begun[-1].start()) + 1] if begun else ""


def _first_error(errors: list[_Entry], ended_at: int | None) -> _Entry | None:
    """The first error near the end that is no known consequence, if there is one."""
    own = [
        entry
        for entry in errors
        if (ended_at is None or entry.at is None or entry.at >= ended_at - _WINDOW)
        and not _OF_OTHERS.search(f".{entry.logger} {entry.message}")
    ]
    exhausted = [entry for entry in own if entry.exhausted()]
    causes = [entry for entry in own if not _CONSEQUENCE.search(f"{entry.message} {entry.decisive()}")]
    return next(iter([*filter(_Entry.names_kind, exhausted), *exhausted, *causes, *own]), None)


def _entries(text: str) -> Iterator[_Entry]:
    lines = [(_json(line), line[:_MOST_OF_A_LINE]) for line in map(str.rstrip, text.split("\n"))]
    has_layout = any(fields or _HEADER.match(line) for fields, line in lines)
    entry: _Entry | None = None
    at: int | None = None
    crashed = False
    for fields, line in lines:
        begun = _of_json(fields) if fields else _new_entry(line, has_layout)
        if crashed and (problem := line.lstrip("# ")):  # below the line that says that it crashed
            begun, crashed = _Entry("FATAL", "", problem), False
        crashed = crashed or bool(_CRASH.match(line))
        if begun:
            if entry:
                yield entry
            at = begun.at = (
                at if begun.at is None else begun.at
            )  # without a time of its own: not before that of the line above
            entry = begun
        elif entry and len(entry.lines) < _MOST_OF_AN_ENTRY:
            entry.lines.append(line)
    if entry:
        yield entry


def _new_entry(line: str, has_layout: bool) -> _Entry | None:
    """The entry that begins with this line, which is no JSON; None: it belongs to the one before."""
    if header := _HEADER.match(line):
        rest = header["rest"] or ""
        parts = _LOGGER.match(rest)
        logger, message = (parts["logger"], parts["message"]) if parts else ("", rest)
        return _Entry(header["level"], logger, message, _time(header["time"]), [])
    if _BARE.match(line):
        return _Entry("FATAL", "", line)
    if has_layout or _CONTINUED.match(line):
        return None
    return _Entry("ERROR" if _EXCEPTION.match(line) or _EXHAUSTED.search(line) else "", "", line)


def _json(line: str) -> dict[str, Any] | None:
    if not (line.startswith("{") and line.endswith("}")):
        return None
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return _flat(fields) if isinstance(fields, dict) else None


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """`{"log": {"level": 1}}` as `{"log.level": 1}`: layouts write both."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{part}": inner for part, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _of_json(fields: Mapping[str, Any]) -> _Entry:
    """An entry of the layouts of Log4j (JsonLayout, ECS, GCP) and of Logback's encoder."""

    def text(*names: str) -> str:
        return next((value for name in names if isinstance(value := fields.get(name), str)), "")

    thrown = ": ".join(filter(None, (text("thrown.name", "error.type"), text("thrown.message", "error.message"))))
    stack = text("error.stack_trace", "stack_trace", "exception.stacktrace", "thrown.extendedStackTrace", "exception")
    message, *below = text("message", "msg").split("\n")
    lines = [*below, *filter(None, [thrown]), *stack.split("\n")]
    second = fields.get("instant.epochSecond")
    at = second * SECOND if isinstance(second, int) else _time(text("@timestamp", "timestamp", "time"))
    level = text("level", "log.level", "severity").upper()
    logger = text("loggerName", "log.logger", "logger_name", "logger")
    bounded_lines = [line[:_MOST_OF_A_LINE] for line in lines[:_MOST_OF_AN_ENTRY]]
    return _Entry(level, logger[:_MOST_OF_A_LINE], message[:_MOST_OF_A_LINE], at, bounded_lines)


def _time(text: str | None) -> int | None:
    """Microseconds, by the writer's clock and in its time zone: only times of one log are compared. None where there is no date."""
    try:
        moment = datetime.fromisoformat((text or "").replace(",", "."))
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND)
    except (ValueError, OverflowError):
        return None


def _masked_line(line: str) -> str:
    return clean(masked(line[:_MOST_OF_A_LINE].strip()), MOST_SHOWN)
