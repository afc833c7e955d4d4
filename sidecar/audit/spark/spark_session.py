"""Starts and ends the Spark session of the audit commands."""

import fcntl
import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sidecar.audit.audit_error import AuditError, reason
from sidecar.audit.spark.jvm import WRITE_SECONDS, Jvm, Run, archive_options, java_options, options_to_write
from sidecar.runtime.folders import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.variable.substitute": "false",
}
"""Required in every session of the audit: PySpark's defaults are the local time zone, Snappy, INT96, and queries in which `${env:…}` is
replaced by a variable of the environment, which may be a secret."""

_DEFAULTS: Final = SQL_SETTINGS | {
    "spark.app.name": "flink-ha-sidecar audit",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
# Start also when the host name cannot be resolved, as where an image is built.
LOCAL_ENVIRONMENT: Final = {"SPARK_LOCAL_IP": "127.0.0.1"}
_LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
    "spark.sql.shuffle.partitions": "16",
}
"""Spark listens on two ports also where it needs none, and deserializes what it is sent there: without a secret, which it makes itself, any
user of this machine could run code as ours."""
_STOP_SECONDS: Final = 30.0


_SMALL_BYTES: Final = 1_000_000
_SMALL_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For queries that read little: Spark would take longer to compile and plan them than to run them (docs/project/benchmarks.md)."""
_PREFIX: Final = "flink-ha-audit-"
_LOCK: Final = "in-use"
_FILES: Final = "files"
_VARIABLE: Final = "FLINK_HA_SIDECAR_AUDIT_JARS"


@contextmanager
def spark_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    run: Run = Run.SMALL,
    object_store: bool = False,
    write_archive: Path | None = None,
) -> "Iterator[SparkSession]":
    """A Spark session with the audit's settings, on all cores of this machine unless `master` or `conf` name another master.

    `master` and `conf` are those of spark-submit; `conf` overrides every default. `run`: how much is read (`log.workload`).
    `object_store`: with the connector for S3, if it is there (`connector_jars`).
    Spark writes nothing to standard output, and writes to standard error only with a `spark.log.level` in `conf`. The JVM ends with the
    block; then it writes the classes that it has loaded to `write_archive`. Must not be nested, nor used beside another active Spark
    context. Raises AuditError when Spark cannot start.
    """
    overrides = dict(conf or {})
    where = master or overrides.get("spark.master", "local[*]")
    local = where == "local" or where.startswith("local[")
    java = {"spark.driver.extraJavaOptions": java_options(run)}
    defaults = _DEFAULTS | (_LOCAL_DEFAULTS | java if local else {})
    if object_store and not any(key.startswith("spark.jars") for key in overrides) and (jars := connector_jars()):
        defaults |= {"spark.jars": ",".join(jar.as_uri() for jar in jars)}
    environment = LOCAL_ENVIRONMENT if local else {}
    silent = "spark.log.level" not in overrides
    # The output of the JVM is of interest only if it does not start, or with `spark.log.level`.
    with tempfile.TemporaryFile() as output, scratch_folder() as folder:
        settings = {"spark.sql.warehouse.dir": f"{folder}/warehouse"} | defaults | overrides | {"spark.master": where}
        archive = options_to_write(write_archive) if write_archive else archive_options()
        # A JVM that is killed leaves all that Spark has spilled.
        jvm = Jvm(settings, [*archive, f"-Djava.io.tmpdir={folder}"], environment, folder, output, silent=silent)
        gateway = session = None
        try:
            gateway = jvm.connect()
            if silent:
                _silence()
            session = _connect(settings, gateway)
            yield session
        finally:
            jvm.end(gateway, session, _STOP_SECONDS if write_archive is None else WRITE_SECONDS)


def own_session(spark: "SparkSession") -> "SparkSession":
    """A new session with the audit's settings, on the Spark context of `spark`. `spark` itself is not changed."""
    session = spark.newSession()
    for key, value in SQL_SETTINGS.items():
        session.conf.set(key, value)
    return session


def tune(session: "SparkSession", sizes: Iterable[int]) -> None:
    """Have Spark interpret as one task what the session plans from now on, if all that it reads is small: these `sizes`, in bytes.

    Else, what an earlier call has changed is as it was configured.
    """
    room = _SMALL_BYTES
    small = all((room := room - size) >= 0 for size in sizes)
    configured = session.sparkContext.getConf()
    for key, value in _SMALL_SETTINGS.items():
        if (wanted := value if small else configured.get(key)) is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, wanted)


def sizes_to_read(answer: "DataFrame") -> Iterator[int]:
    """The sizes of the tables that a query reads, as its plan knows them, or more."""
    plan: Any = answer._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  plans have no Python API
    leaves = plan.collectLeaves()
    return (int(str(leaves.apply(number).stats().sizeInBytes())) for number in range(leaves.size()))


def _silence() -> None:
    """Stop PySpark and Py4J from logging the errors that they raise: the caller reports each error once."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  see Jvm.connect

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # An answer that was not read to its end says goodbye to the JVM when it is deleted, also to one that has died.
    report = sys.unraisablehook
    sys.unraisablehook = lambda event: None if isinstance(event.exc_value, ConnectionError) else report(event)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """False for what Py4J tells the root logger of a broken connection."""
    return record.module != "java_gateway"


def _connect(settings: Mapping[str, str], gateway: Any) -> "SparkSession":
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  see Jvm.connect
    from pyspark.sql import SparkSession  # noqa: PLC0415  see Jvm.connect

    main = threading.current_thread() is threading.main_thread()
    interrupt = signal.getsignal(signal.SIGINT) if main else None
    try:
        conf = SparkConf(loadDefaults=False).setAll([*settings.items()])
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except Exception as error:
        raise AuditError(f"cannot start Spark on {settings['spark.master']}: {reason(error)}") from error
    finally:
        if main:
            signal.signal(signal.SIGINT, interrupt)  # SparkContext replaces the command's handler


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private folder below TMPDIR. It is removed in the end; if this process is killed, by the next one that makes such a folder."""
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        new, files = Path(name, f"{_LOCK}.new"), Path(name, _FILES)
        files.mkdir(mode=0o700)
        with new.open("wb") as lock:
            with suppress(OSError):  # a file system without locks: no other process can take it, and the folder stays
                fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(Path(name, _LOCK))  # it is locked when it appears
            yield files


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # in use; or something still writes to it: the next time
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue  # whose it is may put links there
            lock = os.open(folder / _LOCK, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder / _FILES)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def connector_jars() -> Sequence[Path]:
    """The jars of Hadoop's connector for S3, which PySpark lacks, for logs and spools in object stores.

    All in the folder that FLINK_HA_SIDECAR_AUDIT_JARS names; else beside this Python, as in the audit image, or in the cache.
    Raises AuditError if the folder that is named has none.
    """
    path = os.environ.get(_VARIABLE)
    folders = [Path(path)] if path else [Path(sys.prefix, "share", "flink-ha-sidecar", "s3"), cache_folder() / "s3"]
    jars_there = next((jars for folder in folders if (jars := sorted(folder.glob("*.jar")))), [])
    if path and not jars_there:
        raise AuditError(f"cannot start Spark: {_VARIABLE} names {path}, where there are no jars")
    return jars_there


def collected(rows: "DataFrame") -> "list[Row]":
    """All rows. Raises EOFError when Spark has died meanwhile.

    `DataFrame.collect` takes the end of the connection for the end of the rows: when the JVM is killed while it sends them, those that have
    arrived are returned as if they were all. The protocol of `toLocalIterator` says when nothing follows.
    """
    return list(rows.toLocalIterator())
