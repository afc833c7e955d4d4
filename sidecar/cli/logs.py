"""The format of log lines. They quote stores, documents and services, so unprintable characters are escaped."""

import logging
import sys
import traceback
from types import TracebackType
from typing import Final

from msgspec import json

from sidecar.core.moment import SECOND, timestamp
from sidecar.core.sanitize import escaped

_INDENT = "    "
_FORM: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_log = logging.getLogger("sidecar")

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def set_up(*, debug: bool) -> None:
    """Log lines to stderr: warnings of libraries, and our own info lines; with `debug`, everything of ours, and tracebacks."""
    logging.Formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    logging.Formatter.default_msec_format = "%s.%03d"
    if not (ours := _handlers()):
        ours = [logging.StreamHandler(sys.stderr)]
        logging.basicConfig(handlers=ours)
    for handler in ours:
        handler.setFormatter(LineFormatter(tracebacks=debug))
        handler.setLevel(logging.NOTSET)
    _log.setLevel(logging.DEBUG if debug else logging.INFO)


def end() -> None:
    """Log nothing more."""
    for handler in _handlers():
        handler.setLevel(logging.CRITICAL + 1)


def use_json(*, wanted: bool) -> None:
    """Log objects instead of lines, or lines again."""
    formatter = JsonFormatter if wanted else LineFormatter
    for handler in _handlers():
        handler.setFormatter(formatter(tracebacks=_log.level == logging.DEBUG))


def only_warnings() -> None:
    """Log nothing below a warning, unless debug logs were asked for: of a command that prints one answer."""
    if _log.level != logging.DEBUG:
        _log.setLevel(logging.WARNING)


def _handlers() -> list[logging.Handler]:
    handlers, ours = logging.getLogger().handlers, LineFormatter | JsonFormatter
    return [handler for handler in handlers if isinstance(handler.formatter, ours)]


class LineFormatter(logging.Formatter):
    """One line per record, with unprintable characters escaped, and the indented exception below.

    `tracebacks`: the whole traceback, else its last line.
    """

    def __init__(self, form: str = _FORM, *, tracebacks: bool) -> None:
        super().__init__(form)
        self._tracebacks = tracebacks

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging calls it so
        return escaped(super().formatMessage(record))

    def formatException(self, exc_info: _ExcInfo) -> str:  # noqa: N802  logging calls it so
        error = exc_info[1]
        if error is None:
            return ""
        if not self._tracebacks:
            return _INDENT + escaped("".join(traceback.format_exception_only(error)).rstrip())
        return "\n".join(_INDENT + escaped(line) for line in super().formatException(exc_info).splitlines())

    def formatStack(self, stack_info: str) -> str:  # noqa: N802  logging calls it so
        return "\n".join(_INDENT + escaped(line) for line in stack_info.splitlines())


class JsonFormatter(logging.Formatter):
    """One JSON object per record, on one line: `at` (RFC 3339, UTC), `level`, `logger`, `message`, and `error` of an exception."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": timestamp(round(record.created * SECOND)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            lines = traceback.format_exception(error) if self._tracebacks else traceback.format_exception_only(error)
            line["error"] = "".join(lines).rstrip()
        return escaped(json.encode(line).decode())
