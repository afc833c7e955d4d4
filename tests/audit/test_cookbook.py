"""docs/how-to/audit-cookbook.md: its queries run, and its answers are those of the recording that it names."""

import io
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sidecar.audit import open_audit
from sidecar.audit.ask.registration import views_script
from sidecar.audit.ask.sql import render, run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.spark_session import tune
from sidecar.audit.views.catalog import ANSWERS
from sidecar.core.moment import Timestamp
from sidecar.core.records import AnyRecord, EpisodeRecord, TransitionRecord, record_id
from tests import ROOT
from tests.audit.recorded import records
from tests.audit.spooling import death, evidence, instant, recovery, seal

pytestmark = pytest.mark.spark

TEXT = (ROOT / "docs" / "how-to" / "audit-cookbook.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)\n```\n```\n(.*?)\n```", TEXT, re.DOTALL)
NAMED = [
    ("view" if name in ANSWERS else "table", name, query, answer)
    for query, answer in QUERIES
    for name in re.findall(r"FROM (\w+)", query)[:1]
]
_NO_FILE: Final = {"file": None, "size_bytes": None, "sha256": None}


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The audit log of a sidecar that watched the recording."""
    folder = tmp_path_factory.mktemp("cookbook")
    found = records("2.3.0")
    seal(folder / "spool", "jm-0", 1, [*found, *captured(found), *ended(found)])
    ingest(spark, str(folder / "spool"), str(folder / "audit"))
    return str(folder / "audit")


def captured(recorded: list[AnyRecord]) -> list[AnyRecord]:
    """Evidence of the first two failovers, added to the recording by hand: after the first, no process was left to capture."""
    lost, handed_over = [record for record in recorded if isinstance(record, EpisodeRecord)][:2]
    job = next(record.job_id for record in recorded if isinstance(record, TransitionRecord) and record.job_id)

    def of(episode: EpisodeRecord, occasion: str, kind: str, **fields: Any) -> AnyRecord:
        at = episode.opened_at if occasion == "opened" else episode.closed_at
        made = replace(evidence(0), episode_id=episode.id, occasion=occasion, kind=kind, asked_at=at, observed_at=at)
        return replace(made, id=record_id("evidence", episode.id, kind), **fields)

    def restored(episode: EpisodeRecord, checkpoint: int, at: str) -> AnyRecord:
        attributes = {"name": "orders", "restored_checkpoint_id": str(checkpoint), "restored_at": at}
        detail = f"orders ({job[:8]}…): restored from checkpoint {checkpoint} at {at[:19]}Z"
        return of(episode, "led_again", "job", subject=job, detail=detail, attributes=attributes, **_NO_FILE)

    nothing = {"subject": "", "outcome": "absent", "detail": "no Flink process is visible", "attributes": {}}
    return [
        of(lost, "opened", "process", **nothing, **_NO_FILE),
        restored(lost, 17, "2026-11-20T08:27:15.903000Z"),
        of(handed_over, "opened", "thread_dump", subject="pid 17 (StandaloneSessionClusterEntrypoint)"),
        restored(handed_over, 23, "2026-11-20T08:27:32.114000Z"),
    ]


def ended(recorded: list[AnyRecord]) -> list[AnyRecord]:
    """Deaths and recoveries, added to the recording by hand: nobody saw why these JobManagers ended, nor what came back."""
    lost, drained, _, killed, grown, restarted, stopped, _ = [r for r in recorded if isinstance(r, EpisodeRecord)]
    job = next(record.job_id for record in recorded if isinstance(record, TransitionRecord) and record.job_id)
    made = list[AnyRecord]()

    def after(episode: EpisodeRecord, seconds: float | None) -> Timestamp | None:
        """So long after it began."""
        return (
            None if seconds is None else instant(datetime.fromisoformat(episode.opened_at) + timedelta(seconds=seconds))
        )

    def died(episode: EpisodeRecord, at: float | None, reason: str, confidence: str, observer: str = "jm-0") -> None:
        fields: dict[str, Any] = {
            "episode_id": episode.id,
            "reason": reason,
            "confidence": confidence,
            "ended_at": after(episode, at),
        }
        made.append(death(len(made), **fields, observer=observer, observed_at=after(episode, 2)))

    def came_back(
        episode: EpisodeRecord, verdict: str, times: Sequence[float | None], of_job: dict[str, Any] | None = None
    ) -> None:
        """`times`: of the death, the leader, the tasks and the first checkpoint."""
        dead, led, running, checkpointed = (after(episode, seconds) for seconds in times)
        about = {"episode_id": episode.id, "verdict": verdict, "observed_at": after(episode, 30)}
        stages = {"dead_at": dead, "opened_at": episode.opened_at, "led_at": led, "dispatcher_led_at": led}
        fields: dict[str, Any] = {**about, **stages, "running_at": running, "checkpointed_at": checkpointed}
        made.append(recovery(len(made), **fields))
        if of_job is not None:
            own = {"job_id": job, "name": "orders", "state": "RUNNING", "outcome": "running"}
            made.append(recovery(len(made), **fields | own | of_job))

    def restored(what: str, checkpoint: int | None, behind: int | None, again: float | None) -> dict[str, Any]:
        names = ("restored_from", "checkpoint_id", "checkpoints_behind", "reprocessed_seconds")
        return dict(zip(names, (what, checkpoint, behind, again), strict=True))

    died(lost, None, "unknown", "none", "jm-1")
    died(lost, -5.089, "oom_killed", "high")
    died(drained, 1.302, "drained", "high")
    died(killed, -5.2, "killed", "medium")
    died(grown, -5.71, "oom_killed", "high")
    died(restarted, None, "unknown", "none")
    died(stopped, 0.4, "liveness_probe", "high")
    came_back(lost, "unproven", (None, 0.226, None, None))
    came_back(lost, "recovered", (-5.089, 0.226, 2.344, 3.02), restored("latest", 17, 0, 0.912))
    came_back(drained, "recovered", (1.302, 0.566, 2.418, 3.387), restored("latest", 23, 0, 0.274))
    came_back(killed, "degraded", (-5.2, 0.117, 2.206, 3.198), restored("older", 41, 2, 2.63))
    came_back(grown, "lost", (-5.71, 10.318, 12.441, 13.402), restored("nothing", None, None, None))
    came_back(restarted, "unproven", (None, 0.168, None, None))
    came_back(stopped, "recovered", (0.4, 9.457, 11.602, 12.588), restored("latest", 9, 0, 0.731))
    return made


@pytest.mark.parametrize(
    ("query", "answer"),
    [pytest.param(*both, marks=pytest.mark.covers(f"{kind}:{name}"), id=name) for kind, name, *both in NAMED],
)
def test_an_answer_is_what_the_log_answers(spark: SparkSession, log: str, query: str, answer: str) -> None:
    """Row for row, as `audit sql` prints it."""
    stream = io.StringIO()
    render(run_sql(spark, log, query), "table", stream)
    assert stream.getvalue().splitlines() == answer.splitlines()


def test_the_first_example_of_the_readme_is_a_row_of_eight_columns(spark: SparkSession, log: str) -> None:
    """As it is typed."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", "")
    result = run_sql(spark, log, re.findall(r'audit sql .*?"(SELECT .*?)"', readme)[0])
    assert (len(result.columns), sum(1 for _ in result.rows)) == (8, 8)


def test_every_view_has_its_question_and_an_answer() -> None:
    """Each under a heading of its own."""
    assert sorted(re.findall(r"^## (\w+): .*\?$", TEXT, re.MULTILINE)) == sorted([*ANSWERS, "episodes", "evidence"])
    assert {re.findall(r"FROM (\w+)", query)[0] for query, _ in QUERIES} == {*ANSWERS, "episodes", "evidence"}


def test_the_script_for_spark_sql_makes_every_view(spark: SparkSession, log: str) -> None:
    """Statement by statement, without a comment that a command line might stumble over. Nothing can be written through them."""
    session, opened = spark.newSession(), spark.newSession()
    for each in (session, opened):
        tune(each, ())
    session.conf.set(*re.findall(r"spark-sql --conf (\S+)=(\S+) -i", TEXT)[0])
    open_audit(opened, log)
    script = views_script(spark, log)
    assert "--" not in script
    statements = script.removesuffix(";\n").split(";\n")
    for statement in statements:
        assert ";" not in statement
        session.sql(statement)
    assert session.table("leader_changes").count() == 36
    assert session.table("episodes").count() == 8
    transitions = session.table("transitions")
    assert transitions.schema == opened.table("transitions").schema
    rows = transitions.count()
    with pytest.raises(AnalysisException, match=r"UNSUPPORTED_INSERT|EXPECT_TABLE_NOT_VIEW"):
        session.sql("INSERT INTO transitions SELECT * FROM transitions")
    assert transitions.count() == rows > 0
