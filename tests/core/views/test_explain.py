"""A failover in words: what the page, `GET /api/v1/episodes/ID` and the command `explain` say of it."""

from itertools import takewhile
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.policy.policy import Rule
from sidecar.core.policy.triggers import Trigger
from sidecar.core.records import AnyRecord, EpisodeRecord
from sidecar.core.views.explain import explanation_lines, find
from tests.core.alerting.test_silences import SILENCED, silence
from tests.kit.cluster import B
from tests.kit.core_sidecar import Sidecar, fail_over, failed_over, leased, watching
from tests.kit.outcomes import oom_with_a_lost_job


def named(sidecar: Sidecar, name: str) -> list[str]:
    """The lines below a name, of the last failover."""
    lines = [*explanation_lines(find(sidecar.records, sidecar.episodes()[-1].id))]
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{name:10} "))
    below = takewhile(lambda line: line.startswith(" "), lines[first + 1 :])
    return [line[11:] for line in (lines[first], *below)]


def test_a_failover_says_who_was_notified() -> None:
    """Each notification once, with its last outcome."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(10)
    [line] = named(sidecar, "notified")
    assert line.startswith("ops#0: FlinkLeaderChanged FIRST delivered at 2026-")


def test_a_silenced_failover_names_the_silence_once() -> None:
    """However many components it has."""
    flink, sidecar = watching(policy=SILENCED)
    sidecar.silenced_by(silence())
    fail_over(flink, sidecar).waits(10)
    [line] = named(sidecar, "notified")
    assert line.startswith("ops: FlinkLeaderChanged SUPPRESSED_BY_SILENCE ")


def test_alerts_of_several_rules_that_were_suppressed_are_a_line_each() -> None:
    """None hides another."""
    rules = (*SILENCED.rules, Rule("FlinkFlapping", Trigger.EPISODES))
    flink, sidecar = watching(policy=replace(SILENCED, rules=rules))
    sidecar.silenced_by(silence())
    fail_over(flink, sidecar).waits(10)
    assert {line.split()[1] for line in named(sidecar, "notified")} == {"FlinkLeaderChanged", "FlinkFlapping"}


def test_what_nobody_observed_is_not_called_published() -> None:
    """The leader changed while the sidecar was down."""
    flink, sidecar = watching()
    sidecar.is_killed(down_for=30)
    flink.elect(B)
    sidecar.connects().waits(70)
    assert named(sidecar, "no leader") == ["not known: this sidecar did not observe the change"]


def test_an_address_whose_absence_was_not_observed_is_not_said_to_have_been_published_always() -> None:
    """In pods it may have been absent for long between two observations."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(10)
    like = sidecar.episodes()[-1]
    bounds = {"downtime_seconds_at_least": 12.0, "downtime_seconds_at_most": 25.0}
    record = replace(like, vacant_seconds=None, vacant_seconds_by_component={}, **bounds)
    lines = [*explanation_lines(find([record], like.id))]
    assert "no leader  published: no gap was observed" in lines
    assert "           working: 12 to 25 s" in lines


# -- why it died, and what came back ------------------------------------------------------------------------------------


def words(*records: AnyRecord) -> str:
    """What `explain` says of the failover that they are about, without its transitions."""
    episode = next(record for record in records if isinstance(record, EpisodeRecord))
    return "\n".join(explanation_lines(find(records, episode.id)))


def test_a_failover_says_why_the_process_died_and_what_came_back() -> None:
    """The reason with its facts, the verdict, what became of each job with the worst first, and each stage in seconds."""
    episode = failed_over()
    said = words(episode, *oom_with_a_lost_job(episode))
    assert (
        """\
died       JobManager jm-a-0 was OOM-killed (exit 137, limit 1600 MiB)
           Its container's state is OOMKilled, exit code 137, memory limit 1600 MiB.
leader     jm-a:6123 → jm-b:6123
"""
        in said
    )
    assert said.endswith(
        """\
jobs       1 of 1 failed over
recovery   lost, 2 of 3 TaskManagers registered again (not flink-taskmanager-1-3): The job Nightly report is missing.
           job Nightly report (00000000): is missing
           job Enrich orders (ff595cc2): runs again after 14 s, restored from its latest checkpoint 41, 3.2 s of work done again
stages     +0.0 s    the process ended
           +2.5 s    its end was observed
           +14 s     Enrich orders: runs
           +16 s     Enrich orders: first checkpoint"""
    )


@pytest.mark.parametrize(
    ("jobs", "line"),
    [
        ({"jobs_affected": 0}, "none of 5 was observed to fail over"),
        ({"jobs_ended": 1}, "4 of 5 failed over, 1 ended in it"),
        ({"jobs_ended": 1, "jobs_lost": None}, "4 of 5 failed over, 1 ended in it"),
        (
            {"jobs_ended": 3, "jobs_lost": 2, "jobs_missing": 1},
            ("4 of 5 failed over, 2 lost (Flink does not know them any more), 1 ended in it, 1 still without a leader"),
        ),
    ],
)
def test_a_job_that_was_lost_with_its_config_map_has_not_ended(jobs: dict[str, Any], line: str) -> None:
    """Flink does not know it any more. Records of older versions do not distinguish these."""
    counts = {"jobs_affected": 4, "jobs_total": 5, "jobs_lost": 0} | jobs
    assert f"\njobs       {line}" in words(replace(failed_over(), **counts))


def test_the_record_says_how_many_jobs_were_lost() -> None:
    """With the leaders' ConfigMap, which somebody deleted."""
    flink, sidecar = leased()
    flink.config_maps.delete()
    sidecar.sees_changes().waits(40).sees(flink.elect(B, *CLUSTER_COMPONENTS)).watches(100)
    [episode] = sidecar.episodes()
    assert (episode.jobs_ended, episode.jobs_lost) == (1, 1)
    assert "jobs       1 of 1 failed over, 1 lost (Flink does not know it any more)" in words(episode)
