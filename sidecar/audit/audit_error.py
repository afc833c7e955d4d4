"""AuditError, and the translation of Spark's exceptions to it."""

import errno
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from sidecar.core.errors import OperatorError
from sidecar.core.sanitize import clean

_T = TypeVar("_T")

_ATTEMPTS: Final = 5
FILE_UNREADABLE: Final = "FAILED_READ_FILE"
"""Spark's error class for a file that cannot be read. A retry may succeed: a compaction may be replacing the file."""

_DELETED: Final = "PATH_NOT_FOUND"
"""Spark's error class for a file that was deleted before it was opened."""

JVM_ENDED: Final = "Spark's JVM was killed or has died"
"""Nothing works any more."""

_MOST_CHARACTERS: Final = 2000
"""The longest reason: a query may compute one, with `raise_error`."""
_GONE: Final = "a file was replaced by a compaction, or expired, while it was read; run it again"
_NO_MEMORY: Final = "Spark is out of memory; give it more, as in --conf spark.driver.memory=2g"
_NO_SPACE: Final = "no space is left on the device"

_REASONS = {
    "FAILED_READ_FILE.FILE_NOT_EXIST": _GONE,
    "No such file or directory: s3": _GONE,
    "No space left on device": _NO_SPACE,
    "Java heap space": _NO_MEMORY,
    "GC overhead limit exceeded": _NO_MEMORY,
    "Unable to load credentials": "there are no credentials for the object store",
    "request time and the current time": "the clock of a machine differs too much from that of the object store",
    "Service: S3, Status Code: 403": "the object store refuses the credentials, or they do not allow to get objects",
    "Service: S3, Status Code: 503": "the object store is too busy (503); run it again later",
}
"""Messages for operators, by the fragments of Spark's messages that they replace."""

_OF_THE_STORE: Final = (
    *("software.amazon.awssdk.", "org.apache.hadoop.fs.s3a.", "org.apache.hadoop.ipc.", "javax.net.ssl."),
    *("java.net.Connect", "java.net.NoRouteToHost", "java.net.Socket", "java.net.UnknownHost"),
)
"""How the names of Java's exceptions begin that say something about a store, or the way to it, and nothing about a file."""

_OF_THE_MACHINE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
"""Errors of the operating system that any file would cause."""

_NO_ANSWER = re.compile(r"An error occurred while calling [\w.$]+|[\w.$]+ does not exist in the JVM")
"""All that Py4J says of a call, or of a class, when its connection broke."""

_READ_FILE = re.compile(r"error while reading file (\S+)\. ")
"""Spark's words in an exception around the one that says why."""

_CLUTTER = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: | SQLSTATE: \w{5}")


class AuditError(OperatorError):
    """An operation on the audit log failed."""


class CannotSwapError(AuditError):
    """The file system cannot swap two folders atomically."""


class StoppedError(AuditError):
    """The operation was stopped before it was complete."""


class ChangedError(AuditError):
    """The audit log was changed while it was listed: list it again."""


@contextmanager
def failing_to(do_what: str) -> Iterator[None]:
    """Convert every exception of Spark, Java or the file system in the block to an AuditError: "cannot `do_what`: reason"."""
    try:
        yield
    except AuditError:
        raise
    except Exception as error:  # PySpark, Py4J and the operating system raise many types
        raise AuditError(f"cannot {do_what}: {reason(error, with_file=True)}") from error


def retried(read: Callable[[], _T], pause: float = 1.0) -> _T:
    """The result of `read`, which reads the audit log; retries, after a pause in seconds, when files were replaced meanwhile."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return read()
        except Exception as error:
            if not attempts_left or not is_unreadable_file(error):
                raise
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def is_unreadable_file(error: Exception) -> bool:
    """Whether `error` was raised because a file could not be read: it may have been replaced since it was listed."""
    if isinstance(error, ChangedError | FileNotFoundError):
        return True
    if _is_of_the_store(error):
        return False
    return any(error_class in str(error) for error_class in (FILE_UNREADABLE, _DELETED))


def defect(error: Exception, *, with_file: bool = False) -> str:
    """Why a file cannot be read, in one line. Raises `error` if it says nothing about the file: so no sound file is called damaged."""
    why = reason(error, with_file=with_file)
    of_the_machine = why in (JVM_ENDED, _NO_MEMORY, _NO_SPACE) or getattr(error, "errno", None) in _OF_THE_MACHINE
    if of_the_machine or _is_of_the_store(error):
        raise error
    return why


def reason(error: Exception, *, with_file: bool = False) -> str:
    """The reason in one line: the root of a chain of Java exceptions, without stack traces, SQL plans, codes or repeated class names.

    `with_file`: and the file that could not be read, if one of the exceptions names it.
    """
    # Python connects only to the JVM, and reads rows from it alone. Py4J's class is compared by name: Py4J need not be installed.
    if isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError":
        return JVM_ENDED
    java = getattr(error, "java_exception", None)
    try:
        text = _root_cause(java, with_file=with_file) if java is not None else _message(error)
    except Exception:  # noqa: BLE001  the JVM died after it had thrown the exception; Py4J raises many types
        return JVM_ENDED
    for fragment, replacement in _REASONS.items():
        if fragment in text:
            return replacement
    if _NO_ANSWER.fullmatch(text.strip()):
        return JVM_ENDED
    line = next((line for line in _CLUTTER.sub("", text).splitlines() if line.strip()), type(error).__name__)
    return clean(line.strip(" ;"), _MOST_CHARACTERS)


def _is_of_the_store(error: Exception) -> bool:
    """Whether an object store, or the network, has failed or refused."""
    # The class is compared by name, because obstore need not be installed.
    if type(error).__name__ == "StoreError":
        return True
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    try:
        names = [str(cause.getClass().getName()) for cause in _causes(java)]
    except Exception:  # noqa: BLE001  the JVM died; Py4J raises many types
        return False
    return "java.io.FileNotFoundException" not in names and any(name.startswith(_OF_THE_STORE) for name in names)


def _causes(java: Any) -> Iterator[Any]:
    """An exception of Java's, if any, and what has caused it."""
    while java is not None:
        yield java
        java = java.getCause()


def _message(error: Exception) -> str:
    """What the operating system says has a number, which no operator needs."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _root_cause(java: Any, *, with_file: bool) -> str:
    *outer, java = _causes(java)
    name = java.getClass().getSimpleName()
    message = java.getMessage()
    text = f"{name}: {message}" if message else str(name)
    read = filter(None, (_READ_FILE.search(str(cause.getMessage())) for cause in outer if with_file))
    return next((f"{text} ({found[1]})" for found in read if found[1].rpartition("/")[2] not in text), text)
