"""Makes the archive of Spark's classes: runs each audit command on a small log, in a JVM that writes at its end what it has loaded."""

import gzip
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.spark.jvm import archive_places, options_to_read, script_environment, spark_home
from sidecar.audit.spark.spark_session import LOCAL_ENVIRONMENT, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECK_SECONDS: Final = 300.0
_DO_WHAT: Final = "prepare Spark's start"
_QUERIES: Final = (
    "SELECT * FROM failovers ORDER BY opened_at DESC LIMIT 10",
    "SELECT component, count(*) FROM transitions GROUP BY component",
)


def warm_up() -> tuple[Path, bool]:
    """The archive, and whether it was made now: one that the JVM accepts is left as it is.

    Raises AuditError when Spark does not start, when no place for an archive can be written, or when this Java writes none.
    """
    with failing_to(_DO_WHAT):
        for place in archive_places():
            if place.is_file() and _is_accepted(place):
                return place, False
        return _write_archive(_writable_place()), True


def _write_archive(place: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix=".warm-up-", dir=place.parent) as folder:
        archive = Path(folder) / place.name
        with spark_session("local[2]", write_archive=archive) as spark:
            exercise(spark, Path(folder))
        # A truncated archive would crash every JVM that opens it: what is in place has been tried.
        if not archive.is_file() or not _is_accepted(archive):
            raise AuditError(f"cannot {_DO_WHAT}: this Java wrote no archive of its classes that it accepts")
        archive.replace(place)
    return place


def _is_accepted(archive: Path) -> bool:
    """Whether the JVM that Spark's script starts accepts the archive, with the class path that the script gives it."""
    home = spark_home()
    options = ("-Xshare:on", *options_to_read(archive))
    with tempfile.TemporaryDirectory() as folder:  # a JVM that crashes leaves a report
        tried = subprocess.run(
            [f"{home}/bin/spark-submit", "--version"],
            env={**LOCAL_ENVIRONMENT, **script_environment(home, options, {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_SECONDS,
            check=False,
        )
    return tried.returncode == 0


def _writable_place() -> Path:
    for place in archive_places():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place.parent, os.W_OK):
            return place
    folders = " nor ".join(str(place.parent) for place in archive_places())
    raise AuditError(
        f"cannot {_DO_WHAT}: neither {folders} can be written; FLINK_HA_SIDECAR_CACHE names another folder"
    )


def exercise(spark: "SparkSession", folder: Path) -> None:
    """Run the audit commands on a new log in `folder`."""
    from sidecar.audit.ask.sql import run_sql  # noqa: PLC0415  the same
    from sidecar.audit.ingest.ingest import ingest  # noqa: PLC0415  only a session reports that PySpark is missing
    from sidecar.audit.upkeep.verify import verify  # noqa: PLC0415  the same

    spool, audit = folder / "spool", str(folder / "audit")
    (spool / "warm-up").mkdir(parents=True)
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in _records())
    (spool / "warm-up" / "1-3.jsonl.gz").write_bytes(gzip.compress(lines))
    ingest(spark, str(spool), audit)
    for query in _QUERIES:
        list(run_sql(spark, audit, query).rows)
    verify(spark, audit)


def _records() -> Sequence[dict[str, object]]:
    """Two leaders of a component, and the time in which they were observed."""
    began, ended = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:01:00.000000Z"
    common = {"schema_version": 1, "cluster_id": "warm-up", "observer": "warm-up", "observed_at": ended}
    term = common | {"type": "transition", "component": "dispatcher", "kind": "GRANTED"}
    leaders = (f"00000000-0000-4000-8000-{number:012}" for number in (1, 2))
    observed = {"type": "coverage", "id": "coverage", "began_at": began, "ended_at": ended, "state": "seeing"}
    return [*(term | {"id": leader, "after_session_id": leader} for leader in leaders), common | observed]
