"""A sidecar that starts after a planned action: the objects of the recordings, as they are then."""

import json

import pytest

from sidecar.core.flink.deployments import Maker
from sidecar.core.observations import SnapshotCompleted
from sidecar.core.policy.policy import Policy
from sidecar.drivers.kubernetes.makers import maker_status
from sidecar.drivers.kubernetes.objects import read_change
from tests.kit.planned_recordings import FINDS, POLICY, WAITS, Line, Replay, lines

NOTHING = "nothing is deployed that makes its JobManagers, found at "
SCALED = "Deployment flink-jobmanager was scaled to 0, found at "
POLICIES = {"one cluster": POLICY, "all clusters": FINDS}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize(
    ("name", "at", "why"),
    [
        ("deployment-scaled-to-0", 5.0, SCALED),
        ("deployment-scaled-to-0", 60.0, SCALED),
        ("deployment-deleted", 5.0, NOTHING),
        ("deployment-deleted", 100.0, NOTHING),
        ("helm-uninstall", 60.0, NOTHING),
    ],
)
def test_what_nobody_wants_any_more_is_stopped(policy: Policy, name: str, at: float, why: str) -> None:
    """One info, and no page. When it was done is not known."""
    replay = Replay(name, policy).begins(at)
    assert replay.pages == []
    assert [sent.alert for sent in replay.sidecar.sent] == ["FlinkStopped"]
    assert (replay.why or "").startswith(why)
    assert (replay.status or "").startswith(f"STOPPED: {why}")


@pytest.mark.parametrize(("name", "at"), [("application-job-finishes", 60.0), ("namespace-deleted", 70.0)])
def test_also_without_its_config_map(name: str, at: float) -> None:
    """Flink has deleted it, or somebody has. A finished Job is still there, and says more."""
    replay = Replay(name).begins(at)
    assert replay.pages == []
    assert [sent.alert for sent in replay.sidecar.sent] == ["FlinkStopped"]
    why = "Job flink-jobmanager finished, found at " if name == "application-job-finishes" else NOTHING
    assert (replay.why or "").startswith(why)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("name", ["deployment-deleted", "deployment-scaled-to-0"])
def test_a_leader_that_could_not_withdraw_is_none(policy: Policy, name: str) -> None:
    """Its Role went first: its addresses stay in the ConfigMap, and its lease is not renewed any more."""
    replay = Replay(name, policy).begins(100.0, without=("ConfigMap",))
    assert replay.pages == []
    assert (replay.why or "").startswith(NOTHING if name == "deployment-deleted" else SCALED)


@pytest.mark.parametrize("name", ["configmap-deleted-for-good", "no-image-recreate"])
def test_a_loss_is_paged_all_the_same(name: str) -> None:
    """What makes its JobManagers wants them."""
    assert Replay(name).begins(40.0).pages == ["FlinkNoLeader"]


def _deployment(line: Line, **labels: str) -> Line:
    """The Deployment of a recording, with pods that have these labels."""
    changed: Line = json.loads(json.dumps(line))
    changed["object"]["spec"]["template"]["metadata"]["labels"] = labels
    return changed


@pytest.mark.parametrize(
    ("labels", "pages"), [({"app": "orders"}, ["FlinkNoLeader"]), ({"app": "orders", "component": "taskmanager"}, [])]
)
def test_what_may_make_job_managers_is_not_nothing(labels: dict[str, str], pages: list[str]) -> None:
    """Who describes pods chooses their labels: a Deployment that has to do with Flink may be the one, but for one of TaskManagers."""
    replay = Replay("deployment-deleted")
    first = next(line for line in lines(replay.name) if line["kind"] == "Deployment")
    replay.lists({("Deployment", "flink-jobmanager"): _deployment(first, **labels)})
    replay.sidecar.observe(SnapshotCompleted(replay.sidecar.moment, replay.cluster))
    replay.sidecar.waits(WAITS)
    assert replay.pages == pages


def test_other_programs_and_this_one_make_no_job_managers() -> None:
    """A namespace has others, and the sidecar."""
    read = maker_status(Maker.DEPLOYMENT)

    def may_make(container: dict[str, object]) -> bool:
        template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}
        body = {"metadata": {"name": "x", "uid": "u"}, "spec": {"template": template}}
        item = read_change(json.dumps({"type": "ADDED", "object": body}).encode(), read, qualified=False).item
        assert item
        return item.value.may_make_them

    own: dict[str, object] = {
        "name": "flink-ha-sidecar",
        "image": "r/flink-ha-sidecar:1",
        "args": ["run", "--config", "/etc/flink/x"],
    }
    assert not may_make(own)
    assert not may_make({"name": "nginx", "image": "nginx:1"})
    assert not may_make({"name": "tm", "image": "flink:2", "args": ["taskmanager"]})
    assert may_make({"name": "jm", "image": "flink:2", "args": ["jobmanager", "-Dtaskmanager.numberOfTaskSlots=2"]})
    assert may_make({"name": "jm", "image": "orders:7", "command": ["/start-jobmanager.sh"]})


def test_one_that_is_wanted_again_has_the_time_to_start() -> None:
    """It was scaled to 0 before the sidecar started; its new pod needs a minute."""
    replay = Replay("deployment-scaled-to-0").begins(60.0)
    first = next(line for line in lines(replay.name) if line["kind"] == "Deployment")
    replay.take(first)
    replay.sidecar.waits(60)
    assert replay.pages == []
    assert (replay.status or "").startswith("RECOVERING: ")
    replay.sidecar.waits(300)
    assert replay.pages == ["FlinkNoLeader"]
    assert (replay.status or "").startswith("DOWN: ")


def test_one_that_is_deployed_again_is_wanted() -> None:
    """Nothing was there; then a Deployment comes, whose pods lead."""
    replay = Replay("deployment-deleted").begins(100.0)
    assert (replay.why or "").startswith(NOTHING)
    for line in lines(replay.name):
        if line["at"] == -12:
            replay.take(line)
            replay.sidecar.waits(5)
    assert replay.why is None
    assert replay.pages == []


def test_what_was_deleted_while_no_sidecar_ran_is_known() -> None:
    """The journal knows its name, and it is not in the list."""
    replay = Replay("deployment-deleted")
    for line in lines(replay.name):
        if line["at"] < 0:
            replay.take(line)
    replay.sidecar.observe(SnapshotCompleted(replay.sidecar.moment, replay.cluster))
    replay.sidecar.waits(5).is_killed(down_for=60)
    replay.drives()
    replay.begins(100.0)
    assert replay.pages == []
    assert (replay.why or "").startswith("Deployment flink-jobmanager was deleted, found at ")


def test_what_is_left_of_many_clusters_is_one_message() -> None:
    """Clusters that were deleted long ago leave their ConfigMaps: a sidecar that finds them says so once."""
    replay = Replay("deployment-deleted", FINDS)
    replay.lists({})
    last = [line for line in lines(replay.name) if line["kind"] == "ConfigMap"][-1]
    for number in range(3):
        replay.cluster = f"flink/orders-{number}"
        text = json.dumps(last).replace("my-flink", f"orders-{number}")
        replay.take(json.loads(text))
    replay.sidecar.waits(WAITS)
    assert replay.sidecar.sent_reasons() == [("FlinkStopped", "FIRST")]
    assert [len(sent.parts) for sent in replay.sidecar.sent] == [3]
    assert replay.pages == []
