"""The timeline of one failover in seconds, as far as records have it."""

from sidecar.core.records import AnyRecord, EpisodeRecord
from sidecar.core.views import episode_view
from sidecar.core.views.episode_view import FailoverStage
from sidecar.core.views.explain import find
from tests.kit.cluster import THE_JOB, B
from tests.kit.core_sidecar import fail_over, watching
from tests.kit.outcomes import OTHER_JOB, after, death, recovery


def failed_over() -> tuple[list[AnyRecord], EpisodeRecord]:
    """What was recorded of a failover from A to B, which took 2 s."""
    flink, sidecar = watching()
    fail_over(flink, sidecar)
    return sidecar.waits(10).records, sidecar.episodes()[0]


def stages_of(records: list[AnyRecord], episode: EpisodeRecord) -> list[tuple[str, float]]:
    """The stages of the failover, in seconds."""
    return [(stage.stage, round(stage.seconds, 1)) for stage in find(records, episode.id).stages]


def test_a_failover_from_the_death_to_the_first_checkpoint() -> None:
    """Each stage in seconds since the first one: those of the cluster, then those of its jobs."""
    records, episode = failed_over()
    job = recovery(episode, THE_JOB.job_id)
    assert stages_of([*records, death(episode), recovery(episode), job], episode) == [
        ("dead", 0.0),
        ("seen_dead", 2.5),
        ("no_leader", 4.0),
        ("elected", 6.0),
        ("dispatcher", 6.0),
        ("running", 14.0),
        ("checkpointed", 16.0),
    ]


def test_what_is_not_known_is_left_out() -> None:
    """When the process died; when a job that never ran would have had a checkpoint."""
    records, episode = failed_over()
    job = recovery(episode, THE_JOB.job_id, running_at=None, checkpointed_at=None, dead_at=None)
    assert stages_of([*records, death(episode, ended_at=None, seen_at=None), job], episode) == [
        ("no_leader", 0.0),
        ("elected", 2.0),
        ("dispatcher", 2.0),
    ]


def test_a_change_that_was_not_observed_has_no_times() -> None:
    """The leader changed while the sidecar was down: when it was elected is not when it was discovered."""
    flink, sidecar = watching()
    sidecar.is_killed(down_for=30)
    flink.elect(B)
    sidecar.connects().waits(70)
    assert stages_of(sidecar.records, sidecar.episodes()[-1]) == []


def test_a_leader_that_another_one_replaces_leaves_no_vacancy() -> None:
    """From A to B in one write."""
    flink, sidecar = watching()
    sidecar.sees(flink.elect(B)).waits(10)
    assert [stage for stage, _ in stages_of(sidecar.records, sidecar.episodes()[0])] == ["elected", "dispatcher"]


def test_who_loses_its_leadership_first_and_dies_then_is_shown_in_this_order() -> None:
    """As when its ConfigMap is deleted: the first of both is the beginning."""
    records, episode = failed_over()
    late = after(episode, 0.5)
    assert stages_of([*records, death(episode, ended_at=late, seen_at=None)], episode)[:2] == [
        ("no_leader", 0.0),
        ("dead", 0.5),
    ]


def test_of_many_jobs_the_slowest_are_shown() -> None:
    """The others are counted, with the time by which all of them ran."""
    records, episode = failed_over()
    jobs = [
        recovery(episode, f"{number:032x}", running_at=after(episode, number), checkpointed_at=None)
        for number in range(1, 301)
    ]
    shown, others = episode_view.slowest(find([*records, *jobs], episode.id).stages)
    assert [stage.seconds for stage in shown if stage.job_id] == [300 - n for n in range(10)]
    assert others == "290 more jobs ran after 290 s at most"


def test_of_a_leadership_alone_nothing_is_shown() -> None:
    """The transitions say it all; as data it is there."""
    records, episode = failed_over()
    assert episode_view.slowest(find(records, episode.id).stages) == ([], "")


def test_the_name_of_a_job_is_one_line() -> None:
    """Whatever its owner calls it."""
    stage = FailoverStage("running", after(failed_over()[1], 1), 1.0, OTHER_JOB, "a\x1b[2J\n" + "b" * 1000)
    line = episode_view.label(stage)
    assert line.isprintable()
    assert len(line) < 80


def test_the_first_leader_counts_if_several_followed_each_other() -> None:
    """And the dispatcher's last one."""
    flink, sidecar = watching()
    fail_over(flink, sidecar)
    fail_over(flink, sidecar, after=1).waits(10)
    [episode] = sidecar.episodes()
    assert stages_of(sidecar.records, episode) == [("no_leader", 0.0), ("elected", 2.0), ("dispatcher", 3.0)]
