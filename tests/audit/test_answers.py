"""The views are there whatever has been written, and their answers are right."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError, open_audit
from sidecar.audit.ingest import ingest
from sidecar.audit.schema import BASE_VIEWS, with_event_date
from sidecar.audit.views import ANSWERS, answer
from sidecar.core.records import Transition
from tests.audit.spooling import NOON, seal, session_id, transition

pytestmark = pytest.mark.spark


def test_every_view_is_there_before_its_table_is(spark: SparkSession, spool: Path, audit: Path) -> None:
    """A table that nothing was written to yet is empty, not an error; an answer over it too."""
    seal(spool, "jm-0", 1, lines=[b"garbage"])
    ingest(spark, str(spool), str(audit))
    session = spark.newSession()
    open_audit(session, str(audit))
    for name, schema in BASE_VIEWS.items():
        view = session.table(name)
        assert view.schema == with_event_date(schema)
        assert view.count() == (1 if name == "quarantine" else 0)
    for name in ANSWERS:
        assert session.table(name).count() == 0


def test_rows_of_an_older_schema_lack_the_newer_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A table grows with the records: what an old file does not have is null."""
    old = spark.sql("SELECT 'an id' AS id, 'transition' AS type, DATE'2026-01-01' AS event_date")
    old.write.partitionBy("event_date").parquet(str(tmp_path / "transitions"))
    session = spark.newSession()
    open_audit(session, str(tmp_path))
    (row,) = session.table("transitions").collect()
    assert (row.id, row.kind, row.position) == ("an id", None, None)


def test_an_answer_begins_with_its_question() -> None:
    """Each of them can be read without its code."""
    for name in ANSWERS:
        first = answer(name).splitlines()[0]
        assert first.startswith("-- ")
        assert first.endswith("?")


def test_failovers_are_the_changes_of_leader(spark: SparkSession, spool: Path, audit: Path) -> None:
    """One row for each term after another leader's, however many observers saw it; neither first elections nor a leader seen again."""
    a, b, c = session_id("a"), session_id("b"), session_id("c")
    first = {"last_known_session_id": None, "last_known_address": None, "vacant_seconds": None, "after_session_id": a}
    gone = {"kind": "REVOKED", "pattern": "A->null", "after_session_id": None, "after_address": None}
    job = {"component": "job", "job_id": "0" * 32, "kind": "CHANGED", "last_known_session_id": b, "after_session_id": c}
    unseen = {"kind": "DISCOVERED", "pattern": "?->A", "vacant_seconds": None}
    one = {"cluster_id": "one"}

    def later(seconds: float, number: int, **fields: object) -> Transition:
        return transition(number, NOON + timedelta(seconds=seconds), **one | fields)

    seal(
        spool,
        "jm-0",
        1,
        [
            later(0, 1, **first),
            later(10, 2, **gone),
            later(11.5, 3),
            later(20, 4, **unseen, after_session_id=b, last_known_session_id=b, same_leader=True),
            later(30, 5, **job, vacant_seconds=0.25),
            later(40, 6, **unseen, after_session_id=c, last_known_session_id=b),
        ],
    )
    # The other observer was away when B took over, and knew only A when it came back; and it saw the job's change as the first did.
    seal(
        spool,
        "jm-1",
        1,
        [later(5, 7, **unseen, observer="jm-1"), later(30.001, 5, **job, observer="jm-1", vacant_seconds=0.5)],
    )
    ingest(spark, str(spool), str(audit))
    session = spark.newSession()
    open_audit(session, str(audit))
    session.conf.set("spark.sql.session.timeZone", "UTC")
    rows = session.sql("SELECT *, date_format(at, 'HH:mm:ss.SSS') AS time FROM failovers ORDER BY at").collect()
    told = [(r.time, r.component, r.before_session_id, r.after_session_id, r.vacant_seconds, r.kind) for r in rows]
    assert told == [
        ("12:00:11.500", "dispatcher", a, b, 1.5, "GRANTED"),
        ("12:00:30.000", "job", b, c, 0.25, "CHANGED"),
        ("12:00:40.000", "dispatcher", b, c, None, "DISCOVERED"),
    ]
    assert {row.before_address for row in rows} == {"pekko.tcp://flink@jm-0:6123/user/rpc/dispatcher_0"}
    assert {row.after_address for row in rows} == {"pekko.tcp://flink@jm-1:6123/user/rpc/dispatcher_1"}


def test_what_is_no_audit_log_cannot_be_opened(spark: SparkSession, tmp_path: Path) -> None:
    """One line that says what is missing."""
    with pytest.raises(AuditError, match=r"^cannot open the audit log \S+: there is no such folder$"):
        open_audit(spark, str(tmp_path / "nowhere"))
    with pytest.raises(AuditError, match=r"^\S+ holds no audit log: neither transitions nor "):
        open_audit(spark, str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="there is no such folder"):
        open_audit(spark, str(tmp_path / "file"))
