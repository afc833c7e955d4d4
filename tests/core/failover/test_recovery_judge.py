"""What is proven of a recovery: each row of the tables, and what no row may say."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.failover.recovery_judge import Grade, Workers, job_ruling, judgement, task_managers
from sidecar.core.failover.recovery_state import JobAfter
from sidecar.core.failover.recovery_tables import (
    ORIGINS,
    OUTCOMES,
    JobCase,
    Origin,
    Outcome,
    RulingRow,
    decided,
    last_known,
)
from sidecar.core.moment import SECOND
from sidecar.core.pictures import Checkpoint, Checkpoints, Job, Restored, TaskManager

_DONE: Final = tuple(Checkpoint(number, number * SECOND, number * SECOND + SECOND // 10) for number in (39, 40, 41))
CHECKPOINTS: Final = Checkpoints(42 * SECOND, _DONE, first_id=1, interval=SECOND, shortest=SECOND // 10)
BEFORE: Final = Job("a" * 32, "orders", "RUNNING", 1, 1, 2, 2, CHECKPOINTS)
ENDED: Final = replace(BEFORE, state="FAILED")
AFTER: Final = JobAfter(
    *(BEFORE.id, "RUNNING", 2, (2, 2), 50 * SECOND, 52 * SECOND, 52 * SECOND), restored=Restored(41), first_id=42
)
CASE: Final = JobCase(BEFORE, AFTER, complete=True, dead_at=43 * SECOND, dead_by=43 * SECOND)
STARTING: Final = replace(AFTER, state="INITIALIZING", tasks=(0, 2), running_at=None, read_at=None, restored=None)
NO_STATE: Final = replace(AFTER, restored=None)
GONE: Final = replace(CASE, after=None, lost=True)

OUTCOME_OF: Final = {
    "another cluster answers": (replace(GONE, foreign=True), None),
    "it had ended, and still has": (replace(CASE, before=ENDED, after=replace(AFTER, state="FAILED")), Outcome.ENDED),
    "it had ended, and was started on purpose": (replace(CASE, before=ENDED, intended=True), Outcome.ENDED),
    "it had ended, and starts": (replace(CASE, before=ENDED, after=STARTING), None),
    "it had ended, and runs again": (replace(CASE, before=ENDED), Outcome.RESURRECTED),
    "it had ended, and is not listed any more": (replace(GONE, before=ENDED), Outcome.ENDED),
    "it had ended, and jobs are not listed yet": (replace(GONE, before=ENDED, complete=False), None),
    "it has ended": (replace(CASE, after=replace(AFTER, state="FINISHED")), Outcome.ENDED),
    "it runs": (CASE, Outcome.RUNNING),
    "it is as it was before": (replace(CASE, after=replace(AFTER, started_at=1)), None),
    "it does not run": (replace(CASE, after=replace(AFTER, state="RESTARTING")), None),
    "it was left out on purpose": (replace(GONE, intended=True), None),
    "main() ran anew": (replace(GONE, anew=True), None),
    "jobs are not listed yet": (replace(GONE, complete=False), None),
    "main() runs": (replace(GONE, starting=True), None),
    "its plan is stored": (replace(GONE, stored=True), None),
    "its plan may have gone in time": (replace(GONE, lost=False), None),
    "it is missing": (GONE, Outcome.MISSING),
}
ORIGIN_OF: Final = {
    "it was not restarted": (replace(CASE, same_leader=True, after=replace(NO_STATE, started_at=1)), None),
    "checkpoints are not read yet": (replace(CASE, after=replace(AFTER, read_at=None)), None),
    "it takes no checkpoints": (
        replace(CASE, before=replace(BEFORE, checkpoints=Checkpoints(1, enabled=False)), after=NO_STATE),
        None,
    ),
    "ids go back": (replace(CASE, after=replace(AFTER, first_id=41)), None),
    "it has no state yet": (replace(CASE, after=replace(NO_STATE, read_at=50 * SECOND)), None),
    "when it started is not known": (replace(CASE, before=replace(BEFORE, started_at=0), after=NO_STATE), None),
    "what it had is not known": (replace(CASE, before=replace(BEFORE, checkpoints=None), after=NO_STATE), None),
    "it had no checkpoint": (
        replace(CASE, before=replace(BEFORE, checkpoints=Checkpoints(42 * SECOND)), after=NO_STATE),
        None,
    ),
    "it lost its state": (replace(CASE, after=NO_STATE), Origin.NOTHING),
    "an old savepoint": (
        replace(CASE, after=replace(AFTER, restored=Restored(7, is_savepoint=True))),
        Origin.SAVEPOINT,
    ),
    "a savepoint": (
        replace(CASE, after=replace(AFTER, restored=Restored(42, is_savepoint=True), first_id=43)),
        Origin.SAVEPOINT,
    ),
    "an older checkpoint": (replace(CASE, after=replace(AFTER, restored=Restored(40))), Origin.OLDER),
    "nothing was triggered between": (CASE, Origin.LATEST),
    "nothing was completed between": (
        replace(CASE, dead_by=42 * SECOND + SECOND // 10, after=replace(AFTER, first_id=43)),
        Origin.LATEST,
    ),
    "nothing was triggered yet": (replace(CASE, after=replace(AFTER, first_id=None)), None),
    "something was triggered between": (replace(CASE, after=replace(AFTER, first_id=43)), None),
}


@pytest.mark.parametrize(("table", "examples"), [(OUTCOMES, OUTCOME_OF), (ORIGINS, ORIGIN_OF)])
def test_each_row_decides_its_example(
    table: tuple[RulingRow, ...], examples: dict[str, tuple[JobCase, Outcome | Origin | None]]
) -> None:
    """No row is forgotten here, and none is hidden by one above it."""
    assert [row.name for row in table] == [*examples]
    for name, (case, answer) in examples.items():
        row, ruling = decided(table, case)
        assert (row, ruling.answer) == (name, answer)
        assert ruling.answer or ruling.reason or name in {"it was not restarted", "it takes no checkpoints"}


def test_of_an_older_checkpoint_it_is_known_how_much_is_done_again() -> None:
    """From its trigger to the death; without the time of the death it is not known."""
    older = replace(CASE, after=replace(AFTER, restored=Restored(39)))
    assert (job_ruling(older).behind, job_ruling(older).reprocessed) == (2, 4 * SECOND)
    assert job_ruling(replace(older, dead_at=None)).reprocessed is None
    assert job_ruling(replace(older, after=replace(AFTER, restored=Restored(7)))).behind is None
    later = replace(AFTER, restored=Restored(39), first_id=45)  # some were triggered after the last picture
    assert job_ruling(replace(CASE, after=later)).behind is None


def test_after_a_checkpoint_that_had_to_wait_the_next_one_is_due_sooner() -> None:
    """Flink triggers it as soon as the one before is completed, and the next at the time at which it is due all the same."""
    case = ORIGIN_OF["nothing was completed between"][0]
    late = replace(_DONE[1], ended_at=_DONE[2].triggered_at - 1)
    waited = replace(case, before=replace(BEFORE, checkpoints=replace(CHECKPOINTS, completed=(late, _DONE[2]))))
    unknown = replace(case, before=replace(BEFORE, checkpoints=replace(CHECKPOINTS, completed=_DONE[2:])))
    assert [job_ruling(job_case).origin for job_case in (case, waited, unknown)] == [Origin.LATEST, None, None]


def test_a_savepoint_is_no_checkpoint_that_a_failover_restores() -> None:
    """But what was restored had been completed."""
    assert last_known(Checkpoints(1, (Checkpoint(8, 1, 1), Checkpoint(9, 1, 1, is_savepoint=True)))) == 8
    assert last_known(Checkpoints(1, restored=Restored(5))) == 5
    assert last_known(Checkpoints(1, restored=Restored(5, is_savepoint=True))) is None
    assert last_known(None) is None


TM: Final = tuple(TaskManager(f"tm-{number}") for number in range(3))


@pytest.mark.parametrize(
    ("before", "after", "led_for", "answer"),
    [
        (None, TM, 60, (None, 3, (), Grade.RECOVERED, False)),
        (TM, TM, 1, (3, 3, (), Grade.RECOVERED, False)),
        (TM, (TM[0], TM[1], TaskManager("new")), 1, (3, 3, (), Grade.RECOVERED, False)),
        (TM, TM[:2], 59, (3, 2, ("tm-2",), Grade.UNPROVEN, True)),
        (TM, TM[:2], 60, (3, 2, ("tm-2",), Grade.DEGRADED, False)),
        (TM, (), 60, (3, 0, ("tm-0", "tm-1", "tm-2"), Grade.DEGRADED, False)),
        (TM, None, 60, (3, None, (), Grade.UNPROVEN, True)),
    ],
)
def test_task_managers_that_do_not_register_in_time_are_named(
    before: tuple[TaskManager, ...] | None,
    after: tuple[TaskManager, ...] | None,
    led_for: int,
    answer: tuple[object, ...],
) -> None:
    """One that was restarted has another id."""
    ruling = task_managers(Workers(before), Workers(after), led_for * SECOND)
    assert (ruling.before, ruling.after, ruling.missing, ruling.grade, ruling.open) == answer


def test_task_managers_that_are_not_listed_count() -> None:
    """A handover lists 200 of them, a picture 2,000. Who is missing is not known then, but how many."""
    more, fewer = Workers(TM, 7), Workers(TM[:2], 5)
    whole = task_managers(more, Workers((*TM, TaskManager("tm-9")), 7), 60 * SECOND)
    assert (whole.before, whole.after, whole.grade) == (10, 11, Grade.RECOVERED)
    short = task_managers(more, fewer, 60 * SECOND)
    assert (short.before, short.after, short.missing, short.grade) == (10, 7, (), Grade.DEGRADED)
    assert short.reason == "7 of 10 TaskManagers registered with the new leader."
    assert task_managers(more, Workers(TM), 60 * SECOND).grade is Grade.DEGRADED


ALL_THERE: Final = task_managers(Workers(TM), Workers(TM), SECOND)
LATER: Final = replace(CASE, after=STARTING)
VERDICTS: Final = [
    ([CASE], Grade.RECOVERED),
    ([], Grade.RECOVERED),
    ([CASE, GONE, ORIGIN_OF["an older checkpoint"][0]], Grade.LOST),
    ([CASE, ORIGIN_OF["it lost its state"][0]], Grade.LOST),
    ([CASE, ORIGIN_OF["an older checkpoint"][0], LATER], Grade.DEGRADED),
    ([OUTCOME_OF["it had ended, and runs again"][0]], Grade.DEGRADED),
    ([replace(CASE, after=replace(AFTER, state="FAILED"))], Grade.DEGRADED),
    ([replace(CASE, after=replace(AFTER, state="FINISHED"))], Grade.RECOVERED),
    ([CASE, LATER], Grade.UNPROVEN),
    ([CASE, ORIGIN_OF["something was triggered between"][0]], Grade.UNPROVEN),
]


@pytest.mark.parametrize(("cases", "grade"), VERDICTS)
def test_the_worst_that_is_proven_is_the_verdict(cases: list[JobCase], grade: Grade) -> None:
    """Then what is not proven; only if all is proven it is recovered."""
    verdict = judgement(cases, 0, ALL_THERE, answered=True, patience_over=False)
    assert verdict.grade is grade
    assert bool(verdict.reasons) is (grade is not Grade.RECOVERED)


def test_what_does_not_run_when_the_patience_is_over_is_degraded() -> None:
    """Flink says so. What Flink does not list, and what it says of before, stays unproven."""
    for case, grade in ((LATER, Grade.DEGRADED), (replace(GONE, stored=True), Grade.UNPROVEN)):
        assert judgement([case], 0, ALL_THERE, answered=True, patience_over=True).grade is grade


def test_what_is_not_assessed_is_never_healthy() -> None:
    """Without an answer, or of more jobs than are compared."""
    assert judgement([CASE], 0, ALL_THERE, answered=False, patience_over=True).grade is Grade.UNPROVEN
    assert judgement([CASE], 7, ALL_THERE, answered=True, patience_over=True).grade is Grade.UNPROVEN


def test_the_reason_says_where_the_last_checkpoint_is() -> None:
    """From there a person can start the job. A savepoint that is later is not the last checkpoint, and an unknown path is not said."""
    path = "s3://flink/checkpoints/" + "a" * 200 + "/chk-41"
    before = replace(
        BEFORE, checkpoints=Checkpoints(1, (Checkpoint(41, 1, 2, 7, path), Checkpoint(42, 3, 4, is_savepoint=True)))
    )
    lost = job_ruling(replace(GONE, before=before))
    assert lost.reasons == (f"Flink does not know it any more. Its last known checkpoint is 41, at {path}.",)
    nothing = job_ruling(replace(CASE, before=before, after=NO_STATE))
    assert nothing.reasons == (f"It started without state, though checkpoint 41 had been completed, at {path}.",)
    unknown = replace(before, checkpoints=Checkpoints(1, (Checkpoint(41, 1, 2),)))
    assert job_ruling(replace(GONE, before=unknown)).reasons[0].endswith("Its last known checkpoint is 41.")


_IDS: Final = st.integers(0, 6)
_TIMES: Final = st.one_of(st.none(), st.integers(1, 5).map(lambda second: second * SECOND))
_STATES: Final = st.sampled_from(["RUNNING", "INITIALIZING", "RESTARTING", "FAILED", "FINISHED", "CANCELED"])
_CHECKPOINTS: Final = st.one_of(
    st.none(),
    st.builds(
        Checkpoints,
        st.just(SECOND),
        st.lists(st.builds(Checkpoint, _IDS, st.just(1), st.just(2), is_savepoint=st.booleans()), max_size=3).map(
            tuple
        ),
        st.one_of(st.none(), st.builds(Restored, _IDS, is_savepoint=st.booleans())),
        st.one_of(st.none(), _IDS),
        interval=_TIMES,
        shortest=_TIMES,
        enabled=st.booleans(),
    ),
)
_AFTER: Final = st.builds(
    JobAfter,
    *(
        st.just("a"),
        _STATES,
        st.integers(0, 2),
        st.sampled_from([(1, 2), (2, 2)]),
        _TIMES,
        _TIMES,
        _TIMES,
        st.booleans(),
    ),
    restored=st.one_of(st.none(), st.builds(Restored, _IDS, is_savepoint=st.booleans())),
    first_id=st.one_of(st.none(), _IDS),
)
_CASES: Final = st.builds(
    JobCase,
    st.builds(Job, st.just("a"), st.just("orders"), _STATES, st.integers(0, 2), st.just(1), checkpoints=_CHECKPOINTS),
    st.one_of(st.none(), _AFTER),
    **{
        name: st.booleans()
        for name in ("same_leader", "complete", "stored", "lost", "intended", "starting", "anew", "foreign")
    },
    dead_at=_TIMES,
    dead_by=st.integers(1, 5),
)


@given(_CASES)
def test_nothing_is_said_that_is_not_proven(case: JobCase) -> None:
    """Whatever was observed."""
    ruling, after = job_ruling(case), case.after
    if ruling.outcome is Outcome.RUNNING:
        assert after
        assert after.is_running
    if ruling.outcome is Outcome.MISSING:
        assert after is None
        assert case.complete
        assert case.lost
        assert not (case.stored)
        assert not (case.intended)
        assert not (case.starting)
        assert not (case.anew)
        assert not (case.foreign)
    if ruling.outcome is Outcome.RESURRECTED:
        assert case.before.state in {"FAILED", "FINISHED", "CANCELED"}
    if ruling.origin is Origin.NOTHING:
        assert last_known(case.before.checkpoints) is not None
        assert after
        assert after.restored is None
    if ruling.origin is Origin.LATEST:
        assert after
        assert after.restored
        assert after.restored.id >= (last_known(case.before.checkpoints) or 0)
    if ruling.grade is Grade.RECOVERED:
        assert ruling.outcome in {Outcome.RUNNING, Outcome.ENDED}
        assert not ruling.reasons
    else:
        assert ruling.reasons


@given(st.lists(_CASES, max_size=5), st.booleans(), st.booleans())
def test_a_verdict_is_no_better_than_its_worst_job(cases: list[JobCase], answered: bool, over: bool) -> None:
    """And no wording breaks it."""
    verdict = judgement(cases, 0, ALL_THERE, answered=answered, patience_over=over)
    if verdict.grade is Grade.RECOVERED:
        assert answered
        assert all(job.grade is Grade.RECOVERED for job in verdict.jobs)
    assert (verdict.grade is Grade.LOST) == any(job.grade is Grade.LOST for job in verdict.jobs)
