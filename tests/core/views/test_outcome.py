"""What became of a failover, from the records of one observer or of several."""

import pytest
from msgspec.structs import replace

from sidecar.core.records import Annotation, Death, EpisodeRecord, Record, Recovery, StatusRecord
from sidecar.core.views.episode_view import best_death, needs_review, outcomes_of, recovery_of
from sidecar.core.views.explain import annotation, find, note
from tests.kit.cluster import THE_JOB
from tests.kit.core_sidecar import failed_over, watching
from tests.kit.outcomes import OTHER_JOB, after, death, oom_with_a_lost_job, recovery


@pytest.fixture
def episode() -> EpisodeRecord:
    """A failover that is over."""
    return failed_over()


def noted(episode: EpisodeRecord) -> Annotation:
    return annotation(find([episode], episode.id), note("See OPS-1.", None), after(episode, 60))


def test_the_surest_observer_says_why_it_died(episode: EpisodeRecord) -> None:
    """Whoever recorded first; of equal ones the first."""
    unsure = death(episode, reason="unknown", confidence="none", observer="sidecar-1")
    sure, other = death(episode, reason="killed", confidence="medium"), death(episode, observer="sidecar-2")
    assert best_death([unsure, sure, other]) == other
    assert best_death([unsure, sure]) == sure
    assert best_death([other, death(episode, reason="killed", observer="sidecar-3")]) == other
    assert best_death([]) is None


def test_what_is_proven_counts_more_than_what_is_not_and_the_worst_of_it(episode: EpisodeRecord) -> None:
    """With the jobs as that observer saw them."""
    unproven = recovery(episode, verdict="unproven", observer="sidecar-1")
    fine = recovery(episode)
    view = recovery_of([unproven, fine, recovery(episode, THE_JOB.job_id)], 1)
    assert view
    assert (view.cluster, len(view.jobs)) == (fine, 1)
    lost = [
        recovery(episode, verdict="lost", observer="sidecar-1"),
        recovery(episode, OTHER_JOB, verdict="lost", outcome="missing", observer="sidecar-1"),
    ]
    view = recovery_of([fine, recovery(episode, THE_JOB.job_id), *lost], 2)
    assert view
    assert (view.verdict, [job.outcome for job in view.jobs]) == ("lost", ["missing"])


def test_jobs_are_in_the_order_of_their_urgency(episode: EpisodeRecord) -> None:
    """What is missing, what lost state, what took longest."""
    rows = [
        recovery(episode, "a", running_after_seconds=3.0),
        recovery(episode, "b", running_after_seconds=9.0),
        recovery(episode, "c", restored_from="older"),
        recovery(episode, "d", restored_from="nothing"),
        recovery(episode, "e", outcome="resurrected"),
        recovery(episode, "f", outcome="missing"),
    ]
    view = recovery_of(rows, 6)
    assert view
    assert "".join(str(job.job_id) for job in view.jobs) == "fedcba"


def test_what_is_recorded_counts_more_than_what_was_known_before(episode: EpisodeRecord) -> None:
    """A page that is made just then has both."""
    rows = [recovery(episode), recovery(episode, THE_JOB.job_id)]
    view = recovery_of([*rows, recovery(episode, THE_JOB.job_id, outcome="unproven")], 1)
    assert view
    assert [job.outcome for job in view.jobs] == ["running"]


def test_without_the_row_of_the_cluster_the_verdict_is_that_of_a_job(episode: EpisodeRecord) -> None:
    """The journal may have lost it: each row has the verdict of the whole failover."""
    jobs = [record for record in oom_with_a_lost_job(episode) if isinstance(record, Recovery) and record.job_id]
    view = recovery_of(jobs, 2)
    assert view
    assert (view.verdict, view.cluster, len(view.jobs)) == ("lost", None, 2)


def test_a_failover_is_open_for_review_until_somebody_annotates_it(episode: EpisodeRecord) -> None:
    """Death and verdict of the list are those of the records, in whatever order they are read."""
    assert needs_review(episode, {})
    unproven = recovery(episode, verdict="unproven", observer="sidecar-1")
    records: list[Death | Recovery | Annotation] = [recovery(episode), noted(episode), unproven, death(episode)]
    for order in (records, records[::-1]):
        outcomes = outcomes_of(order)
        outcome = outcomes[episode.id]
        assert outcome.death
        assert (outcome.death.reason, outcome.verdict, outcome.reviewed) == ("oom_killed", "recovered", True)
        assert not needs_review(episode, outcomes)


def test_later_records_are_added_to_earlier_ones(episode: EpisodeRecord) -> None:
    """A journal is read from where it was read to."""
    earlier = outcomes_of([death(episode)])
    assert outcomes_of([], earlier) == {}
    outcome = outcomes_of([recovery(episode)], earlier)[episode.id]
    assert (outcome.death, outcome.verdict) == (death(episode), "recovered")


def test_blindness_needs_no_review() -> None:
    """Nothing happened to the cluster."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(20).connects().waits(70)
    [blind] = sidecar.episodes()
    assert not needs_review(blind, {})


def test_the_status_of_a_failover_is_the_last_one_before_the_next_one(episode: EpisodeRecord) -> None:
    """In whatever order the records are read, in one go or in two; of a cluster without failovers there is none."""
    down, ok = (
        StatusRecord(
            **{name: getattr(death(episode), name) for name in Record.__struct_fields__ if name != "id"},
            id=f"{status}",
            status=status,
            previous=None,
            since=at,
            sentence="",
            episode_id=episode.id,
        )
        for status, at in (("DOWN", after(episode, 1)), ("OK", after(episode, 2)))
    )
    down, ok = replace(down, observed_at=down.since), replace(ok, observed_at=ok.since)
    for order in ([down, ok], [ok, down]):
        assert outcomes_of(order)[episode.id].status == ok
        assert outcomes_of(order[1:], outcomes_of(order[:1]))[episode.id].status == ok
        assert find([episode, *order], episode.id).last_status == ok
    assert outcomes_of([replace(down, episode_id=None)]) == {}
