"""A job whose leader goes a moment before those of the cluster is a part of that failover, and its record says so."""

import pytest
from msgspec.structs import replace

from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.records import TransitionRecord
from tests.kit.cluster import ALL_FOUR, CLUSTER, THE_JOB, B
from tests.kit.core_sidecar import Sidecar, watching


def revoked(sidecar: Sidecar) -> list[TransitionRecord]:
    return [record for record in sidecar.transitions(THE_JOB) if record.kind == "REVOKED"]


@pytest.mark.parametrize("seconds", [0.0, 0.5, 4.0])
def test_a_job_that_leaves_first_has_the_episode_of_those_that_follow(seconds: float) -> None:
    """The end of a killed leader's session removes its addresses in any order."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB)).waits(seconds)
    sidecar.sees(flink.vacate(*CLUSTER_COMPONENTS)).waits(2).sees(flink.elect(B)).waits(10)
    (episode,) = sidecar.episodes()
    assert {t.episode_id for t in sidecar.transitions(*ALL_FOUR)} == {episode.id}
    assert [t.kind for t in sidecar.transitions(THE_JOB)] == ["REVOKED", "GRANTED"]
    assert revoked(sidecar)[0].observed_at < sidecar.transitions(*CLUSTER_COMPONENTS)[0].observed_at


def test_a_job_that_leaves_alone_is_recorded_alone() -> None:
    """Once no failover can claim it any more: with the time at which it was seen, and no episode."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB)).waits(10)
    assert [t.episode_id for t in revoked(sidecar)] == [None]
    assert not sidecar.state.clusters[CLUSTER].departed
    sidecar.sees(flink.vacate(*CLUSTER_COMPONENTS)).waits(2)
    assert len(revoked(sidecar)) == 1


def test_a_job_that_ends_is_recorded_at_once_and_in_order() -> None:
    """That its graph is gone says what it was."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB)).sees(flink.forget())
    assert [t.kind for t in sidecar.transitions(THE_JOB)] == ["REVOKED", "RETIRED"]


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_is_not_recorded_yet_survives_the_end_of_the_sidecar(how: str) -> None:
    """It is in the state on disk, and is recorded once."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB))
    assert not revoked(sidecar)
    if how == "stopped":
        sidecar.stops()
    sidecar.is_killed(down_for=1)
    assert len(revoked(sidecar)) == 1
    sidecar.connects().waits(30)
    assert len(revoked(sidecar)) == 1


def test_a_record_that_waits_is_the_same_record_for_every_observer() -> None:
    """Its id does not depend on when, and with what, it was recorded."""
    alone: list[TransitionRecord] = []
    first: list[TransitionRecord] = []
    for records, together in ((alone, False), (first, True)):
        flink, sidecar = watching()
        sidecar.sees(flink.vacate(THE_JOB)).waits(0 if together else 10)
        sidecar.sees(flink.vacate(*CLUSTER_COMPONENTS))
        records += [replace(record, episode_id=None) for record in revoked(sidecar)]
    assert alone == first
