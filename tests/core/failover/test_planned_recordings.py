"""Planned actions and real losses, recorded in real pods, through the driver's decoders and the core: who is paged, and what is known."""

from typing import Final

import pytest
from msgspec.structs import replace

from sidecar.core.observations import RightRefused
from sidecar.core.policy.policy import Severity
from sidecar.core.policy.triggers import Need
from tests.kit.planned_recordings import POLICY, Replay

STOPPED: Final = {
    "deployment-scaled-to-0": "Deployment flink-jobmanager was scaled to 0, since ",
    "deployment-deleted": "Deployment flink-jobmanager was deleted, since ",
    "helm-uninstall": "Deployment flink-jobmanager was deleted, since ",
    "namespace-deleted": "Deployment flink-jobmanager was deleted, since ",
    "application-job-finishes": "Job flink-jobmanager finished, since ",
}
PLANNED: Final = ("deployment-rolled", "deployment-rolled-recreate", "drained")
PAGED: Final = ("configmap-deleted-for-good", "no-image-recreate")
WARNED: Final = ("kill-9", "out-of-memory", "pod-deleted-by-hand")


@pytest.mark.parametrize(("name", "why"), STOPPED.items(), ids=STOPPED)
def test_a_cluster_that_nobody_wants_is_stopped_and_pages_nobody(name: str, why: str) -> None:
    """It is known what was done, and when."""
    replay = Replay(name).plays()
    assert [(sent.alert, sent.reason.value) for sent in replay.sidecar.sent] == [("FlinkStopped", "FIRST")]
    first = (
        "Flink ended and deleted its ConfigMap" if name == "application-job-finishes" else why.removesuffix(", since ")
    )
    assert replay.sidecar.sent[0].body.splitlines()[0] == f"stopped: {first}"
    assert replay.sidecar.sent[0].title.startswith("[STOPPED] ")
    assert (replay.why or "").startswith(why)


@pytest.mark.parametrize("name", PLANNED)
def test_a_planned_failover_is_one_info_at_its_end(name: str) -> None:
    """The recording says so, and the episode does."""
    replay = Replay(name).plays()
    assert {sent.severity for sent in replay.sidecar.sent} == {Severity.INFO}
    assert [episode.planned for episode in replay.sidecar.episodes()] == [True]


@pytest.mark.parametrize("name", PAGED)
def test_a_real_loss_is_paged(name: str) -> None:
    """Also in the middle of a rollout whose new pod says why it cannot come: at once, not after the budget."""
    replay = Replay(name).plays()
    assert replay.pages == ["FlinkNoLeader"]
    assert replay.why is None


@pytest.mark.parametrize("name", WARNED)
def test_a_loss_that_heals_is_no_plan(name: str) -> None:
    """Nobody changed what makes the JobManagers."""
    replay = Replay(name).plays()
    assert not any(episode.planned for episode in replay.sidecar.episodes())
    assert "FlinkPlannedFailover" not in {sent.alert for sent in replay.sidecar.sent}


@pytest.mark.parametrize("name", sorted({*STOPPED} - {"namespace-deleted", "application-job-finishes"}))
def test_it_is_the_same_when_the_sidecar_starts_during_it(name: str) -> None:
    """One second after the action."""
    replay = Replay(name).plays(since=2.0)
    assert replay.pages == []
    assert replay.why


def test_without_the_right_to_read_them_a_stop_pages_and_an_end_of_flink_does_not() -> None:
    """An application that ends removes its addresses and deletes its ConfigMap itself: that takes no other right."""
    without = replace(POLICY, plans=frozenset[str](), lacks=frozenset({Need.PLANS}))
    scaled = Replay("deployment-scaled-to-0", without).plays()
    assert scaled.pages == ["FlinkNoLeader"]
    facts = dict(scaled.sidecar.sent[-1].facts)
    assert facts["planned"] == "not known without kubernetes: {plans: true}"
    finished = Replay("application-job-finishes", without).plays()
    assert finished.pages == []
    assert (finished.why or "").startswith("Flink ended and deleted its ConfigMap, since ")


def test_the_end_of_a_namespace_is_said_where_its_role_may_get_it() -> None:
    """Not "Deployment … was deleted": that is true, and says less."""
    replay = Replay("namespace-deleted", ending="flink").plays()
    assert "stopped: namespace flink is being deleted" in replay.sidecar.sent[0].body
    assert (replay.why or "").startswith("namespace flink is being deleted, since ")
    assert replay.pages == []


def test_a_right_that_is_refused_is_named() -> None:
    """In messages and in the status, until it is granted: without it a stop looks like a loss."""
    replay = Replay("deployment-scaled-to-0", reads=False)

    def answers(*, refused: bool) -> None:
        for right in ("deployments.apps", "jobs.batch"):
            replay.sidecar.observe(RightRefused(replay.sidecar.moment, replay.cluster, right, refused))

    answers(refused=True)
    replay.plays()
    assert replay.pages == ["FlinkNoLeader"]
    lacks = "without the right to list deployments.apps, jobs.batch"
    assert dict(replay.sidecar.sent[-1].facts)["planned"] == f"not known {lacks}"
    assert (replay.status or "").endswith(f"whether it was meant is not known {lacks}")
    answers(refused=False)
    replay.sidecar.waits(1)
    assert "not known" not in (replay.status or "")
