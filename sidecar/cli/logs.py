"""The format of log lines. They quote stores, documents and services, so unprintable characters are escaped."""

import logging
import traceback
from types import TracebackType

from sidecar.core.sanitize import escaped

_INDENT = "    "

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LineFormatter(logging.Formatter):
    """One line per record, with unprintable characters escaped, and the indented exception below.

    `tracebacks`: the whole traceback, else its last line.
    """

    def __init__(self, form: str, *, tracebacks: bool) -> None:
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
