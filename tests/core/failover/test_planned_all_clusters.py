"""The same recordings where one sidecar finds the clusters of all namespaces, and reads how their JobManagers end."""

import pytest

from sidecar.core.cluster.cluster_step import REMOVED_AFTER
from sidecar.core.moment import SECOND
from sidecar.core.observations import (
    ClusterFound,
    ConfigMapObserved,
    ConnectionState,
    SnapshotCompleted,
    ViewObserved,
)
from sidecar.core.policy.policy import Severity
from sidecar.core.records import Death
from tests.kit.planned_recordings import FINDS, FOUND, Line, Replay

OTHER = "flink/payments"


class TwoClusters(Replay):
    """Another cluster leads in the same namespace, in pods with the same label `app`."""

    def _take_config_map(self, line: Line, *, deleted: bool) -> None:
        super()._take_config_map(line, deleted=deleted)
        at = self.sidecar.moment
        if OTHER in self.sidecar.state.clusters or self.last is None:
            return
        data = {key: value.replace("10.0.0.", "10.9.9.") for key, value in self.last.data.items()}
        self.sidecar.observe(ClusterFound(at, OTHER))
        self.sidecar.observe(ViewObserved(at, OTHER, ConnectionState.CONNECTED))
        self.sidecar.observe(
            ConfigMapObserved(at, OTHER, "flink/payments-cluster-config-map", "u-2", "1", data, self.last.leader)
        )
        self.sidecar.observe(SnapshotCompleted(at, OTHER))


def test_one_that_is_scaled_to_0_is_stopped() -> None:
    """One info, and no page."""
    replay = Replay("deployment-scaled-to-0", FINDS).plays()
    assert replay.sidecar.sent_reasons() == [("FlinkStopped", "FIRST")]
    assert (replay.why or "").startswith("Deployment flink-jobmanager was scaled to 0, since ")


@pytest.mark.parametrize("name", ["deployment-deleted", "helm-uninstall"])
def test_one_that_is_deleted_is_stopped(name: str) -> None:
    """Its ConfigMap stays."""
    replay = Replay(name, FINDS).plays()
    assert replay.sidecar.sent_reasons() == [("FlinkStopped", "FIRST")]
    assert (replay.why or "").startswith("Deployment flink-jobmanager was deleted, since ")


def test_one_whose_namespace_is_deleted_is_stopped_and_then_retired() -> None:
    """Its ConfigMap goes with leaders in it: that is no loss, and not what this observer cannot read."""
    replay = Replay("namespace-deleted", FINDS, "flink").plays()
    assert [(sent.alert, sent.severity) for sent in replay.sidecar.sent] == [("FlinkStopped", Severity.INFO)]
    assert "stopped: namespace flink is being deleted" in replay.sidecar.sent[0].body
    assert (replay.status or "").startswith("STOPPED: namespace flink is being deleted, since ")
    replay.sidecar.waits(REMOVED_AFTER / SECOND)
    assert FOUND not in replay.sidecar.state.clusters
    assert {sent.alert for sent in replay.sidecar.sent} == {"FlinkStopped"}


def test_one_whose_job_finishes_is_retired() -> None:
    """Flink withdraws, and deletes its ConfigMap."""
    replay = Replay("application-job-finishes", FINDS).plays()
    assert replay.pages == []
    assert FOUND not in replay.sidecar.state.clusters


def test_one_whose_config_map_is_deleted_for_good_is_down_and_then_retired() -> None:
    """Nobody changed what makes its JobManagers: that is a loss."""
    replay = Replay("configmap-deleted-for-good", FINDS).plays()
    assert replay.pages == ["FlinkNoLeader"]
    assert (replay.status or "").startswith("DOWN: ")
    replay.sidecar.waits(REMOVED_AFTER / SECOND)
    assert FOUND not in replay.sidecar.state.clusters
    assert replay.sidecar.sent[-1].reason.value == "RESOLVED"


@pytest.mark.parametrize("name", ["deployment-rolled", "deployment-rolled-recreate", "drained"])
def test_a_planned_failover_stays_planned(name: str) -> None:
    """One info at its end: the pods of a plain Deployment are known by their addresses, not by their label."""
    replay = Replay(name, FINDS).plays()
    assert [episode.planned for episode in replay.sidecar.episodes()] == [True]
    assert {sent.severity for sent in replay.sidecar.sent} == {Severity.INFO}


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("kill-9", ["killed"]),
        ("out-of-memory", ["oom_killed"]),
        ("pod-deleted-by-hand", ["deleted"]),
        ("drained", ["drained"]),
        ("deployment-rolled", ["replaced"]),
    ],
)
def test_how_the_leader_ended_is_known(name: str, reasons: list[str]) -> None:
    """Of a plain Deployment's pods too."""
    replay = Replay(name, FINDS).plays()
    deaths = [record for record in replay.sidecar.records if isinstance(record, Death)]
    assert [(death.cluster_id, death.reason) for death in deaths] == [(FOUND, reason) for reason in reasons]


@pytest.mark.parametrize("name", ["kill-9", "out-of-memory", "pod-deleted-by-hand"])
def test_a_loss_is_no_plan(name: str) -> None:
    """Nobody changed what makes the JobManagers."""
    replay = Replay(name, FINDS).plays()
    assert not any(episode.planned for episode in replay.sidecar.episodes())
    assert "FlinkPlannedFailover" not in {sent.alert for sent in replay.sidecar.sent}


def test_a_loss_in_a_rollout_pages() -> None:
    """The new pod says that it cannot come."""
    assert Replay("no-image-recreate", FINDS).plays().pages == ["FlinkNoLeader"]


@pytest.mark.parametrize("name", ["deployment-scaled-to-0", "drained", "kill-9"])
def test_another_cluster_of_the_namespace_has_no_part_in_it(name: str) -> None:
    """Its pods have other addresses."""
    replay = TwoClusters(name, FINDS).plays()
    other = replay.sidecar.state.clusters[OTHER]
    assert other.operated is None
    assert {sent.cluster_id for sent in replay.sidecar.episodes()} <= {FOUND}
