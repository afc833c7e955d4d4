"""The entries of a log of a JVM: time, level, logger, message, lines below it. Its layout is the operator's choice, and it is untrusted.

An entry begins where a level is at the head of a line: behind a time, or first. Where no line has a level, each line is an entry, and an
exception is an error. An entry may be a JSON object: layouts of Log4j (Json, ECS, GELF, GCP, Logstash) and of Logback.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from sidecar.core.moment import SECOND

_DEEPEST: Final = 6
_MOST_LINES: Final = 500
_LEVELS: Final = (
    "level",
    "loglevel",
    "log_level",
    "levelname",
    "lvl",
    "severity",
    "severitytext",
    "log.level",
    "level_value",
)
_LEVEL_NAME: Final = re.compile(r"[A-Za-z]{1,20}$")
_EXCEPTION: Final = re.compile(r"exception|throw|err(?:or)?\b|stack|cause|full_message|trace", re.IGNORECASE)
_PART: Final = re.compile(r"(?<!full_)(?:type|class|name|message|code|id)$", re.IGNORECASE)
"""The name of a field that is part of an exception, and no line by itself."""
_CLASS: Final = ("name", "type", "class", "classname", "exception_class")
_SAID: Final = ("message", "exception_message", "localizedmessage")


def level_of(fields: Mapping[str, Any]) -> str | None:
    """The level of the entry, in capitals. Numbers are those of syslog (GELF), Log4j, Logback and Bunyan. None: it has none."""
    named = _plainly_named(fields)
    values = [named[name] for name in _LEVELS if name in named]
    for value in values:
        if isinstance(value, dict) and isinstance(name := value.get("name"), str):
            value = name  # noqa: PLW2901  java.util.logging's level is an object
        if isinstance(value, str) and _LEVEL_NAME.match(value):
            return value.upper()
    for value in values:
        number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 7 else value
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return _level_of_number(number)
    return None


def _level_of_number(number: int) -> str:
    """The word for a level that is a number."""
    if number < 8:  # syslog's: the lower, the worse
        return "ERROR" if number <= 3 else "INFO"
    if number % 100 == 0 and number <= 600:  # Log4j's: the lower, the worse
        return "ERROR" if number <= 200 else "INFO"
    is_bunyan, is_java_util_logging = number in {50, 60}, 1_000 <= number < 2_000
    return "ERROR" if is_bunyan or is_java_util_logging or number >= 40_000 else "INFO"  # Logback's ERROR is 40,000


def text_of(fields: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that is a text; of one that is an object, its own text. Empty: there is none."""
    named = _plainly_named(fields)
    for name in names:
        value = named.get(name)
        if isinstance(value, dict):
            value = value.get("text", value.get("formattedMessage"))
        if isinstance(value, str):
            return value
    return ""


def exceptions(fields: Mapping[str, Any]) -> list[str]:
    """The lines of the entry's exceptions, the outermost first: stack traces as they are, and objects as `class: message`."""
    found: list[str] = []
    for line in _exceptions(fields, 0):
        found.append(line)
        if len(found) >= _MOST_LINES:
            break
    return found


def _exceptions(fields: Mapping[str, Any], depth: int) -> Iterator[str]:
    # ECS without nesting: the class and the message are fields beside each other.
    kind, said = fields.get("error.type"), fields.get("error.message")
    if isinstance(kind, str):
        yield f"{kind}: {said}" if isinstance(said, str) else kind
    for name, value in fields.items():
        if not _EXCEPTION.search(name) or _PART.search(name) or depth > _DEEPEST:
            continue
        if isinstance(value, str):
            yield from value.split("\n")
        elif isinstance(value, dict):
            named = _plainly_named(value)
            kind = next((named[key] for key in _CLASS if isinstance(named.get(key), str)), "")
            said = next((named[key] for key in _SAID if isinstance(named.get(key), str)), "")
            yield from [": ".join(filter(None, (kind, said)))] if kind else []
            yield from _exceptions(value, depth + 1)


def _plainly_named(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by name, in small letters and without the marks of GELF and Logstash; `{"log": {"level": 1}}` as `log.level` too."""
    plain: dict[str, Any] = {}
    for name, value in fields.items():
        key = name.lower().lstrip("_@")
        plain.setdefault(key, value)
        if isinstance(value, dict):
            for part, inner in value.items():
                plain.setdefault(f"{key}.{part.lower()}", inner)
    return plain


MOST_OF_A_LINE: Final = 2_000
_MOST_OF_AN_ENTRY: Final = 500
"""Lines."""
_HEAD: Final = 250
"""Characters of a line in which its level is looked for."""

_COLOUR: Final = re.compile(r"(?:\x1b\[|\x9b)[\d;?]{0,20}[A-Za-z]")
_UPPER: Final = r"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|SEVERE|CRITICAL|TRC|DBG|INF|WRN|ERR|FTL"
_WORD: Final = rf"(?:(?i:{_UPPER}|debu|config|fine[rs]?t?|emerg(?:ency)?)|[TDIWEF])"
_LEVEL: Final = re.compile(
    r"(?i:\b(?:log_?)?(?:level|lvl|severity)[\"']?\s{0,3}[=:]\s{0,3}[\"']?)"
    rf"(?P<named>{_WORD})\b"
    rf"|[\[(<{{|,;\"']\s{{0,9}}(?P<enclosed>{_WORD})\s{{0,9}}[\])>}}|,;\"']"
    rf"|:\d\d(?:[.,]\d{{1,9}})?(?:Z|\s?[+-]\d\d:?\d\d)?[\])|,;]?[\s:-]{{1,9}}(?P<behind_time>{_WORD})(?=[\s:\]|-])"
    rf"|(?<![\w.$])(?P<free>{_UPPER})(?![\w$/])(?!\.\w)"
)
_TIMED: Final = re.compile(r"\d\d?:\d\d|(?<![\w.])\d{6}|^\W{0,3}\d")
"""The text before a level: a time of the day, a date, or a count of milliseconds."""
_FIRST: Final = re.compile(r"(?:[\w.-]{1,60}\s{0,9}\|)?(?:\s|\[[^\]]{0,100}\]|[\[(<{|\"'*#]){0,10}")
"""The text before a level that comes first in its line: a column, a thread in brackets."""
_BELOW: Final = re.compile(r"\s*(?:at |\.\.\. \d+ (?:more|common)|Caused by: |Suppressed: |Wrapped by: )|$")
_CONTINUED: Final = re.compile(r"\s|Caused by: |\.\.\. \d+ more|Suppressed: |$")
_NAME: Final = r"[A-Za-z_$][\w$]{0,100}"
_DASHED: Final = re.compile(
    r"(?:\[[^\]]{0,200}\]\s+)?(?P<logger>[\w.$-]{1,200})\s+(?:\S{0,200}\s+)?-\s+(?P<message>.*)"
)
_NAMED: Final = re.compile(
    rf".{{0,100}}?(?<![\w.$])(?P<logger>(?:{_NAME}\.){{1,20}}{_NAME}|[A-Z][a-z\d]{{1,50}}[A-Z][\w$]{{0,100}})"
    r"\s{0,80}(?:\[[^\]]{0,100}\]|\([^)]{0,100}\)|:\d{1,6})?\s{0,9}(?:[\]|>:;,]{1,3}|-{1,3}\s)\s{0,9}-?\s{0,9}(?P<message>.*)"
)
EXCEPTION: Final = re.compile(
    r"(?:Caused by: |Exception in thread \"[^\"]{0,200}\" |Terminating due to |Aborting due to )?"
    rf"(?P<name>(?:{_NAME}\.){{1,20}}{_NAME}(?:Exception|Error|Throwable|Failure)[\w$]{{0,40}})(?::|$)"
)
_FAILURE: Final = re.compile(r"(?:Exception|Error|Throwable|Failure)$")
_CRASH: Final = re.compile(
    r"#\s+(A fatal error has been detected by|There is insufficient memory for) the Java Runtime"
)
_BARE: Final = re.compile(
    r"Exception in thread \"|Terminating due to |Aborting due to |Exception: \S{1,200} thrown from the Uncaught"
)
"""The lines that a JVM itself prints between the lines of the log."""
_OF_A_THREAD: Final = ("Exception in thread", "Exception: ")
"""The process may live on."""
EXHAUSTED: Final = re.compile(r"OutOfMemoryError|StackOverflowError|No space left on device|unable to create native")

_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_DATE: Final = re.compile(
    r"(?P<first>\d{1,4})[/.-](?P<middle>\d\d?)[/.-](?P<last>\d{1,4})[ T:-](?P<clock>\d\d?:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
)
_COMPACT: Final = re.compile(r"(?<!\d)(?P<date>\d{8})[ T_-]?(?P<clock>\d\d:?\d\d:?\d\d)(?:[.,]?(?P<part>\d{1,9}))?")
_COUNT: Final = re.compile(r"\W{0,3}(?P<number>\d{1,9}|\d{13})(?![\d:/.-])")
"""Milliseconds since the JVM started, or since the epoch."""


class LogEntry(Struct):
    """One message of the log, with the lines below it."""

    level: str
    """The level in capitals. Empty: the entry has none."""
    logger: str
    message: str
    at: int | None = None
    """Microseconds, by the writer's clock and in its time zone: only times of one log are compared. None where there is no date."""
    lines: list[str] = []


def entries(text: str) -> Iterator[LogEntry]:
    lines = [(_json(line), line[:MOST_OF_A_LINE]) for line in _whole_objects(_COLOUR.sub("", text).split("\n"))]
    has_levels = any(fields is not None or _establishes_levels(line) for fields, line in lines)
    entry: LogEntry | None = None
    at: int | None = None
    crashed = False
    for fields, line in lines:
        begun = _json_entry(fields) if fields is not None else _new_entry(line, has_levels=has_levels)
        if crashed and (problem := line.lstrip("# ")):  # below the line that says that it crashed
            begun, crashed = LogEntry("FATAL", "", problem), False
        crashed = crashed or bool(_CRASH.match(line))
        if begun:
            if entry:
                yield entry
            # without a time of its own: not before that of the line above
            at = begun.at = at if begun.at is None else begun.at
            entry = begun
        elif entry and len(entry.lines) < _MOST_OF_AN_ENTRY:
            entry.lines.append(line)
    if entry:
        yield entry


def _whole_objects(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a log; a JSON object that is spread over several lines is one."""
    pending: list[str] = []
    for line in map(str.rstrip, lines):
        if not pending and line.lstrip("[, ") != "{":
            yield line
            continue
        pending.append(line)
        if line.rstrip(",]") == "}":
            yield " ".join(pending)
            pending = []
        elif len(pending) > _MOST_OF_AN_ENTRY:
            yield from pending
            pending = []
    yield from pending


def _json(line: str) -> dict[str, Any] | None:
    """The object that this line is, if it has a level."""
    line = line.strip("[], ")
    if not (line.startswith("{") and line.endswith("}")):
        return None
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and level_of(fields) else None


def _json_entry(fields: dict[str, Any]) -> LogEntry:
    message, *below = text_of(fields, "message", "msg", "short_message", "body", "log", "event").split("\n")
    lines = [*below, *exceptions(fields)][:_MOST_OF_AN_ENTRY]
    logger = text_of(
        fields, "logger", "logger_name", "loggername", "log.logger", "class", "sourceclassname", "category"
    )
    return LogEntry(
        level_of(fields) or "",
        logger[:MOST_OF_A_LINE],
        message[:MOST_OF_A_LINE],
        _time_of_json(fields),
        [line[:MOST_OF_A_LINE] for line in lines],
    )


def _time_of_json(fields: dict[str, Any]) -> int | None:
    match fields.get("instant"), fields.get("timeMillis", fields.get("timestamp")):
        case {"epochSecond": int(seconds)}, _:
            return seconds * SECOND
        case _, bool():
            return None
        case _, int() | float() as number if 0 < number < 1e14:
            return round(number * (SECOND // 1000 if number > 1e11 else SECOND))
    return _time(text_of(fields, "timestamp", "time", "ts", "datetime", "date"))


def _establishes_levels(line: str) -> bool:
    """Whether this line shows that the log's layout has levels. A JVM prints warnings of its own into any log."""
    return not line.startswith("WARNING: ") and _header(line) is not None


def _header(line: str) -> re.Match[str] | None:
    """The level at the head of the line, if the line begins an entry."""
    if _BELOW.match(line) or EXCEPTION.match(line):
        return None
    level = _LEVEL.search(line, 0, _HEAD)
    if level is None:
        return None
    before = line[: level.start(level.lastgroup or 0)]
    is_head = _TIMED.search(before) or _FIRST.fullmatch(before) or (level["named"] and before.startswith(("<", "{")))
    return level if is_head or level.start() == 0 else None


def _new_entry(line: str, *, has_levels: bool) -> LogEntry | None:
    """The entry that begins with this line, which is no JSON; None: it belongs to the one before."""
    if level := _header(line):
        logger, message = _logger_and_message(line[level.end(level.lastgroup or 0) :])
        return LogEntry(level[level.lastgroup or 0].upper(), logger, message, _time(line[:_HEAD]))
    if _BARE.match(line):
        return LogEntry("ERROR" if line.startswith(_OF_A_THREAD) else "FATAL", "", line)
    if has_levels or _CONTINUED.match(line):
        return None
    return LogEntry("ERROR" if EXCEPTION.match(line) or EXHAUSTED.search(line) else "", "", line)


def _logger_and_message(rest: str) -> tuple[str, str]:
    """The logger and the message in what follows the level. Without a logger that is one, the logger is empty."""
    rest = rest.lstrip("])>}|,;:\"'*# \t-")
    for form in (_DASHED, _NAMED):
        parts = form.match(rest)
        if parts and not _FAILURE.search(parts["logger"]):
            return parts["logger"], parts["message"]
    return "", rest


def _time(head: str) -> int | None:
    """The time in the head of a line: a date and a time, or a count of milliseconds."""
    try:
        if iso := _ISO.search(head):
            return _microseconds(datetime.fromisoformat(iso[0].replace(",", ".")))
        if date := _DATE.search(head):
            return _microseconds(_dated(date))
        if compact := _COMPACT.search(head):
            clock = compact["clock"].replace(":", "")
            return _microseconds(datetime.fromisoformat(f"{compact['date']}T{clock}"))
    except (ValueError, OverflowError):
        return None
    count = _COUNT.match(head)
    return int(count["number"]) * (SECOND // 1000) if count else None


def _dated(date: re.Match[str]) -> datetime:
    """A date with slashes, points or dashes: the year first (of two digits too, as Hadoop writes it), or last."""
    first, middle, last = (int(date[name]) for name in ("first", "middle", "last"))
    year, month, day = (last, middle, first) if len(date["last"]) == 4 else (first, middle, last)
    if month > 12:
        month, day = day, month
    hour, minute, second = map(int, date["clock"].split(":"))
    part = int((date["part"] or "0")[:6].ljust(6, "0"))
    return datetime(year if year > 99 else 2000 + year, month, day, hour, minute, second, part)  # noqa: DTZ001  in the writer's zone


def _microseconds(moment: datetime) -> int:
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND)
