"""An archive of the classes that Spark loads (Java's class data sharing): with it a JVM of the tests starts in half the CPU time.

`python -m tests.kit.spark_classes` makes it, once for each virtual environment: it holds only for the jars at their present paths. Without
it all is the same, and slower.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""The variable from which spark-submit takes options of the JVM, beside those that the session is configured with."""
_WRITE_SECONDS: Final = 300


def use() -> None:
    """Have every Spark that this process and its children start use the archive, if there is one."""
    if given := options():
        os.environ.setdefault(_OPTIONS, " ".join(given))


def options() -> Sequence[str]:
    """What a JVM is told to use the archive, if there is one."""
    return (f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off") if ARCHIVE.exists() else ()


def make() -> None:
    """Make the archive if there is none: a JVM writes it at its end, of what an ingest and a query have loaded."""
    if ARCHIVE.exists():
        return
    from sidecar.audit.ingest import ingest
    from sidecar.audit.session import spark_session
    from sidecar.audit.sql import run_sql
    from tests.audit.spooling import seal, transition

    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as staging:
        spool, audit, archive = (Path(staging) / name for name in ("spool", "audit", ARCHIVE.name))
        seal(spool, "jm-0", 1, [transition(number, datetime.now(UTC)) for number in range(10)])
        os.environ[_OPTIONS] = f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
        with spark_session("local[2]") as spark:
            ingest(spark, str(spool), str(audit))
            run_sql(spark, str(audit), "SELECT * FROM failovers ORDER BY at")
            gateway: Any = spark.sparkContext._gateway
            spark.stop()
            gateway.proc.stdin.close()  # its end, at which it writes the archive: on a busy machine the session would not wait
            gateway.proc.wait(_WRITE_SECONDS)
        archive.rename(ARCHIVE)


if __name__ == "__main__":
    make()
