"""Starts and ends the Spark session of the audit commands."""

import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final

from sidecar.audit.audit_error import AuditError, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
"""Required in every session of the audit: PySpark's defaults are the local time zone, Snappy and INT96."""

_DEFAULTS: Final = SQL_SETTINGS | {
    "spark.app.name": "flink-ha-sidecar audit",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
_LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",  # start also when the host name cannot be resolved
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "16",
    # Most runs are short, and spent half of their CPU time on compiling code that hardly ran (docs/audit.md: Measured).
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_STOP_SECONDS: Final = 30.0
_JAVA_CHECK_SECONDS: Final = 30.0
_OLDEST_JAVA: Final = 17
_EXCEPTION: Final = re.compile(r"\w(?:Exception|Error): (.+)")


@contextmanager
def spark_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> "Iterator[SparkSession]":
    """A Spark session with the audit's settings, on all cores of this machine unless `master` or `conf` name another master.

    `master` and `conf` are those of spark-submit; `conf` overrides every default. Spark writes nothing to standard output, and writes to
    standard error only with a `spark.log.level` in `conf`. The JVM ends with the block. Must not be nested, nor used beside another active
    Spark context. Raises AuditError when Spark cannot start.
    """
    try:
        from pyspark import SparkConf  # noqa: PLC0415  PySpark is an optional extra, and `--help` must not wait for it
    except ImportError as error:
        raise AuditError(
            "cannot start Spark: it is not installed; install it with: pip install 'flink-ha-sidecar[audit]'"
        ) from error
    given = dict(conf or {})
    where = master or given.get("spark.master", "local[*]")
    defaults = _DEFAULTS | (_LOCAL_DEFAULTS if where == "local" or where.startswith("local[") else {})
    settings = SparkConf(loadDefaults=False).setAll([*(defaults | given | {"spark.master": where}).items()])
    # The output of the JVM is of interest only if it does not start, or with `spark.log.level`.
    with tempfile.TemporaryFile() as jvm_output, tempfile.TemporaryDirectory(prefix="spark-warehouse-") as warehouse:
        settings.setIfMissing("spark.sql.warehouse.dir", warehouse)
        silent = "spark.log.level" not in given
        if silent:
            _silence()
        gateway = _launch(settings, jvm_output, silent=silent)
        session = None
        try:
            session = _connect(settings, gateway)
            yield session
        finally:
            _end(gateway, session)


def own_session(spark: "SparkSession") -> "SparkSession":
    """A new session with the audit's settings, on the Spark context of `spark`. `spark` itself is not changed."""
    session = spark.newSession()
    for key, value in SQL_SETTINGS.items():
        session.conf.set(key, value)
    return session


def _silence() -> None:
    """Stop PySpark and Py4J from logging the errors that they raise: the caller reports each error once."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  see spark_session

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _launch(settings: Any, jvm_output: IO[bytes], *, silent: bool) -> Any:
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415  see spark_session

    try:
        start: Any = launch_gateway  # untyped
        return start(
            settings, popen_kwargs={"stdout": jvm_output if silent else 2, "stderr": jvm_output if silent else None}
        )
    except Exception as error:
        raise AuditError(f"cannot start Spark: {_start_problem(jvm_output) or reason(error)}") from error


def _connect(settings: Any, gateway: Any) -> "SparkSession":
    from pyspark import SparkContext  # noqa: PLC0415  see spark_session
    from pyspark.sql import SparkSession  # noqa: PLC0415  see spark_session

    main = threading.current_thread() is threading.main_thread()
    interrupt = signal.getsignal(signal.SIGINT) if main else None
    try:
        return SparkSession(SparkContext(conf=settings, gateway=gateway))
    except Exception as error:
        raise AuditError(f"cannot start Spark on {settings.get('spark.master')}: {reason(error)}") from error
    finally:
        if main:
            signal.signal(signal.SIGINT, interrupt)  # SparkContext replaces the command's handler


def _end(gateway: Any, session: "SparkSession | None") -> None:
    """Stop Spark and wait until its JVM has ended, which otherwise outlives this process."""
    from pyspark import SparkContext  # noqa: PLC0415  see spark_session

    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        if session is not None:
            session.stop()  # fails and warns when the JVM has died, which was reported already
    gateway.shutdown()
    # Otherwise PySpark reuses the closed gateway for the next session of this process.
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  there is no public way
    if gateway.proc is None:  # spark-submit started the JVM, which ends with this process
        return
    gateway.proc.stdin.close()  # the JVM ends when its standard input does
    try:
        gateway.proc.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def _start_problem(jvm_output: IO[bytes]) -> str | None:
    """Why the JVM did not start, and what to do."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    remedy = "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        return f"it needs Java {_OLDEST_JAVA} or newer, and none was found: {remedy}"
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it needs Java {_OLDEST_JAVA} or newer, and {java} does not run ({error}): {remedy}"
    version = answer.stderr.partition('version "')[2].removeprefix("1.").partition('"')[0]
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) < _OLDEST_JAVA:
        return f"it needs Java {_OLDEST_JAVA} or newer, and {java} is Java {major}: {remedy}"
    jvm_output.seek(0)
    output = jvm_output.read().decode(errors="replace")
    exception = _EXCEPTION.search(output)
    return exception[1] if exception else next(iter(output.splitlines()), None)
