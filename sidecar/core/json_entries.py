"""Level, texts and exceptions of an entry that is a JSON object: layouts of Log4j (Json, ECS, GELF, GCP, Logstash) and of Logback."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

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
_WORD: Final = re.compile(r"[A-Za-z]{1,20}$")
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
        if isinstance(value, str) and _WORD.match(value):
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
