"""Records read as lines: true, short, and text, whatever stands in the store."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.cluster import record_lines
from sidecar.core.pods import host_port
from sidecar.core.sanitize import MOST_CHARACTERS, clean
from tests.kit.cluster import JOB
from tests.kit.core_sidecar import fail_over, failed_over, watching
from tests.kit.outcomes import death, recovery

NOTHING: Final = dict.fromkeys(("running_after_seconds", "restored_from", "reprocessed_seconds"))
"""Of a job of which nothing is known."""


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("pekko.tcp://flink@jm-0.jm:6123/user/rpc/dispatcher_1", "jm-0.jm:6123"),
        ("akka.ssl.tcp://flink@10.1.2.3:6123/user/rpc/resourcemanager_0", "10.1.2.3:6123"),
        ("http://[2001:db8::1]:8081", "[2001:db8::1]:8081"),
        ("https://flink.example:443", "flink.example:443"),
        ("http://[broken", "http://[broken"),
        ("no address", "no address"),
        ("", ""),
    ],
)
def test_an_address_is_printed_as_host_and_port(address: str, place: str) -> None:
    """In every scheme that Flink writes; what is no address is printed as it stands."""
    assert host_port(address) == place


@given(st.text(max_size=400))
def test_no_control_character_reaches_a_message(hostile: str) -> None:
    """An address with line ends, terminal codes or direction marks stays one bounded, printable line."""
    line = clean(hostile)
    assert line.isprintable()
    assert len(line) <= MOST_CHARACTERS + 1


def test_a_failover_is_one_line_of_the_log() -> None:
    """From whom to whom, why, how sure that is, for how long, how many jobs, and under which name to ask for more."""
    flink, sidecar = watching()
    fail_over(flink, sidecar, 1).waits(10)
    (episode,) = sidecar.episodes()
    assert record_lines.episode_line(episode) == (
        f"failover jm-a:6123 → jm-b:6123: jobmanager_lost (medium), no published leader for {episode.vacant_seconds:.3f} s, "
        f"no working leader for at least 1.0 s, 1 of 1 jobs [{episode.id}]"
    )
    sidecar.is_cut_off().waits(20).connects().waits(70)
    blind = sidecar.episodes()[-1]
    assert record_lines.episode_line(blind) == f"no failover: observer_blind (high) [{blind.id}]"


def test_a_death_is_one_line_of_the_log() -> None:
    """Who, how, with the numbers that say so; what is only likely says that it is not sure."""
    episode = failed_over()
    assert record_lines.record_line(death(episode)) == (
        f"JobManager jm-a-0 was OOM-killed (exit 137, limit 1600 MiB) [{episode.id}]"
    )
    likely = death(episode, reason="killed", confidence="medium", pod=None)
    assert record_lines.death_line(likely) == "JobManager jm-a:6123 was killed (exit 137, not sure)"
    unknown = death(episode, reason="unknown", confidence="none", exit_code=None, pod="\x1b[2J")
    assert (
        record_lines.death_line(unknown)
        == "JobManager \N{REPLACEMENT CHARACTER}[2J ended, and what ended it is not known"
    )


def test_a_recovery_is_one_line_of_the_log() -> None:
    """Of the cluster: the verdict, how long it took, TaskManagers, and why not all is well."""
    episode = failed_over()
    fine = recovery(episode)
    assert record_lines.record_line(fine) == (
        f"recovery: recovered, all jobs run after 14 s, 3 of 3 TaskManagers registered again [{episode.id}]"
    )
    missing = [f"tm-{number}" for number in range(7)]
    few: dict[str, Any] = {"task_managers_before": 9, "task_managers_after": 2, "task_managers_missing": missing}
    degraded = recovery(episode, verdict="degraded", running_after_seconds=None, reasons=["7 are gone."], **few)
    assert record_lines.recovery_line(degraded) == (
        "recovery: degraded, 2 of 9 TaskManagers registered again (not tm-0, tm-1, tm-2, tm-3, tm-4, 2 more): 7 are gone."
    )


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ({}, "runs again after 14 s, restored from its latest checkpoint 41, 3.2 s of work done again"),
        (
            {"restored_from": "older", "checkpoint_id": 39, "checkpoints_behind": 2, "restarts": 1},
            (
                "runs again after 14 s, restored from checkpoint 39, 2 checkpoints before its latest, "
                "3.2 s of work done again, restarted 1 time"
            ),
        ),
        (
            {"restored_from": "older", "checkpoints_behind": None, "reprocessed_seconds": None},
            "runs again after 14 s, restored from checkpoint 41, older than its latest",
        ),
        (
            {"restored_from": "savepoint", "checkpoint_id": 7, "reprocessed_seconds": None},
            "runs again after 14 s, restored from savepoint 7",
        ),
        (
            {"restored_from": "nothing", "checkpoint_id": None, "reprocessed_seconds": None},
            "runs again after 14 s, restored from nothing",
        ),
        ({**NOTHING, "outcome": "missing", "state": None}, "is missing"),
        ({**NOTHING, "outcome": "ended", "state": "FINISHED"}, "ended (FINISHED)"),
        ({**NOTHING, "outcome": "resurrected"}, "had ended, and runs again"),
        (
            {**NOTHING, "outcome": "unproven", "state": None, "reasons": ["Flink's REST server did not answer."]},
            "not known whether it runs, Flink's REST server did not answer.",
        ),
    ],
)
def test_what_became_of_a_job_is_one_line(other: dict[str, Any], line: str) -> None:
    """Whether it runs, since when, and with which state."""
    job = recovery(failed_over(), JOB, **other)
    assert record_lines.recovery_line(job) == f"job Enrich orders (ff595cc2): {line}"
