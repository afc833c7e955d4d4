"""The one exception of the audit, and how Spark's become it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sidecar.core.errors import OperatorError

FILE_UNREADABLE: Final = "FAILED_READ_FILE"
"""How Spark calls it that a file cannot be read. It may be whole in a moment: a compaction is at work."""

_GONE: Final = "PATH_NOT_FOUND"
"""How it calls it that a file is gone before it is opened."""

_OTHER_WORDS = {
    "FAILED_READ_FILE.FILE_NOT_EXIST": "a file was replaced by a compaction, or expired, while it was read; do it again",
    "No space left on device": "no space is left on the device",
    "Java heap space": "Spark is out of memory; give it more, as in --conf spark.driver.memory=2g",
    "Answer from Java side is empty": (_JVM_ENDED := "Spark's JVM was killed or has died"),
}
"""What a person can act upon, for what only a programmer understands."""

_CLUTTER = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: | SQLSTATE: \w{5}")


class AuditError(OperatorError):
    """The audit cannot do what it was asked."""


class CannotSwapError(AuditError):
    """The storage cannot swap a folder for another at once."""


class StoppedError(AuditError):
    """It was to stop before it was done."""


@contextmanager
def failing_to(do_what: str) -> Iterator[None]:
    """Whatever Spark, Java or the file system raises within becomes one AuditError: "cannot `do_what`: the reason"."""
    try:
        yield
    except AuditError:
        raise
    except Exception as error:  # one border for everything that PySpark, Py4J and the operating system throw
        raise AuditError(f"cannot {do_what}: {reason(error)}") from error


def is_of_a_file(error: Exception) -> bool:
    """Whether Spark raised it because it could not read one of the files."""
    return any(sign in str(error) for sign in (FILE_UNREADABLE, _GONE))


def reason(error: Exception) -> str:
    """Why, in one line: the root of a chain of Java exceptions, without stack traces, SQL plans, codes or repeated class names."""
    if isinstance(error, ConnectionError):  # only the JVM is talked to from Python
        return _JVM_ENDED
    java = getattr(error, "java_exception", None)
    text = _root_cause(java) if java is not None else str(error)
    for words, better in _OTHER_WORDS.items():
        if words in text:
            return better
    line = next((line for line in _CLUTTER.sub("", text).splitlines() if line.strip()), type(error).__name__)
    return line.strip(" ;")


def _root_cause(java: Any) -> str:
    cause = java.getCause()
    while cause is not None:
        java, cause = cause, cause.getCause()
    name = java.getClass().getSimpleName()
    message = java.getMessage()
    return f"{name}: {message}" if message else str(name)
