"""What Spark, Java or the operating system says, in one line for an operator; and what is the fault of a file."""

import errno
import os
from types import SimpleNamespace
from typing import Never

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from sidecar.audit.audit_error import JVM_ENDED, defect, reason
from sidecar.net.object_store import StoreError


def of_a_dead_jvm() -> Py4JError:
    """An exception that Java threw before it died: it can no longer be asked for its message."""
    error = Py4JError("An error occurred while calling o0.count.\n")
    error.java_exception = SimpleNamespace(getCause=unanswered)
    return error


def unanswered() -> Never:
    """A call to a JVM that has died."""
    raise Py4JNetworkError("Answer from Java side is empty")


def of_java(*classes: str) -> Py4JError:
    """An exception of the first class, each caused by the next."""
    cause = None
    for name in reversed(classes):
        described = SimpleNamespace(
            getName=lambda name=name: name, getSimpleName=lambda name=name: name.rpartition(".")[2]
        )
        cause = SimpleNamespace(
            getCause=lambda cause=cause: cause, getClass=lambda it=described: it, getMessage=lambda: "no"
        )
    error = Py4JError("An error occurred while calling o0.count.\n")
    error.java_exception = cause
    return error


@pytest.mark.parametrize("problem", ["Java heap space", "GC overhead limit exceeded"])
def test_a_lack_of_memory_says_what_to_do(problem: str) -> None:
    """In the words of either garbage collector."""
    assert reason(MemoryError(f"java.lang.OutOfMemoryError: {problem}")).endswith("--conf spark.driver.memory=2g")


def test_an_exception_of_a_jvm_that_has_died_since_says_so() -> None:
    """Java is asked for its message, and no longer answers."""
    assert reason(of_a_dead_jvm()) == JVM_ENDED


def test_a_class_that_no_jvm_is_there_to_find_says_so() -> None:
    """Py4J takes no answer for a class that does not exist."""
    assert reason(Py4JError("org does not exist in the JVM")) == JVM_ENDED


def test_a_reason_that_a_query_computes_has_a_bound() -> None:
    """As with `raise_error(repeat('x', 100000000))`."""
    assert len(reason(ValueError("x" * 100_000))) == 2001


@pytest.mark.parametrize(
    "error",
    [
        of_a_dead_jvm(),
        ConnectionResetError("reset"),
        MemoryError("java.lang.OutOfMemoryError: Java heap space"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        StoreError("the answer was 503 (SlowDown)"),
        of_java("org.apache.spark.SparkException", "software.amazon.awssdk.services.s3.model.S3Exception"),
        of_java("java.io.IOException", "java.net.ConnectException"),
    ],
)
def test_what_says_nothing_about_a_file_is_no_damage(error: Exception) -> None:
    """A sound file would have caused it too."""
    with pytest.raises(type(error)):
        defect(error)


@pytest.mark.parametrize("error", [ValueError("no magic number"), OSError(errno.EIO, "no magic number")])
def test_all_else_is_damage(error: Exception) -> None:
    """Of a format, or of a disk."""
    assert defect(error).endswith("no magic number")


def test_what_is_not_in_the_store_is_the_files_fault() -> None:
    """It may have been replaced: who reads it looks again."""
    gone = of_java("java.io.FileNotFoundException", "software.amazon.awssdk.services.s3.model.NoSuchKeyException")
    assert defect(gone) == "NoSuchKeyException: no"
