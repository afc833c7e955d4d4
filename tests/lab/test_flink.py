"""The lab's Flink fails over as Flink does."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.kit.waiting import wait_for
from tests.lab.flink import Lab
from tests.lab.lab_error import LabError

Alive = Callable[[int], bool]


@pytest.mark.parametrize("version", ["1.14.6", "1.13.6"])
def test_flink_that_needs_java_11_is_refused(version: str, tmp_path: Path) -> None:
    """Versions whose ZooKeeper client cannot connect on Java 17 are refused before anything is fetched."""
    with pytest.raises(LabError) as caught:
        Lab(tmp_path, version)
    assert str(caught.value) == (
        f"Flink {version} needs Java 11 for its ZooKeeper client; the lab runs Flink 1.15 and newer, on Java 17"
    )


def test_a_folder_is_used_once(tmp_path: Path) -> None:
    """An earlier lab's configuration and data are not overwritten."""
    (tmp_path / "conf").mkdir()
    with Lab(tmp_path) as lab, pytest.raises(LabError, match="already holds a lab: give it an empty folder"):
        lab.start()


@pytest.mark.e2e
@pytest.mark.parametrize("lab", ["2.3.0", "1.20.5"], indirect=True)
def test_the_standby_takes_over_and_the_job_goes_on(lab: Lab) -> None:
    """With its leader killed by -9, a cluster gets the standby as leader and the job runs and checkpoints again."""
    job = lab.submit_job()
    assert re.fullmatch("[0-9a-f]{32}", job)
    leader = lab.wait_for_leader()
    [standby] = [jobmanager for jobmanager in lab.jobmanagers if jobmanager is not leader]

    leader.kill()
    assert lab.leading() is None
    assert lab.wait_for_leader(timeout=60) is standby
    lab.wait_for_job(job)
    assert lab.job_state(job) == "RUNNING"

    rest_address = leader.rest_address
    leader.start()
    assert (leader.rest_address, lab.leading()) == (rest_address, standby)
    third = lab.add_jobmanager()
    assert (len(lab.jobmanagers), lab.jobmanagers[2], lab.leading()) == (3, third, standby)

    lab.taskmanager.kill()
    lab.taskmanager.start()
    lab.wait_for_job(job)
    lab.cancel_job(job)
    assert lab.job_state(job) == "CANCELED"


@pytest.fixture(scope="module")
def patient_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster whose sessions last as long as a busy machine may need: Flink 2.3.0 may not contend any more when one has expired."""
    with Lab(tmp_path_factory.mktemp("patient") / "lab", session_timeout=timedelta(seconds=15)) as cluster:
        cluster.start()
        yield cluster


@pytest.mark.e2e
def test_without_zookeeper_there_is_no_leader(patient_lab: Lab) -> None:
    """While ZooKeeper is down there is no leader to name; when it is back, one leads again."""
    patient_lab.zookeeper.kill()
    assert patient_lab.leading() is None
    patient_lab.zookeeper.start()
    assert patient_lab.wait_for_leader() in patient_lab.jobmanagers


@pytest.mark.e2e
def test_a_paused_leader_loses_its_leadership(patient_lab: Lab) -> None:
    """A leader that is stopped, not dead, is replaced after the session timeout and comes back as a standby."""
    leader = patient_lab.wait_for_leader()
    # After the outage above it may lead by its znode alone. Paused before it has reconnected, Flink 2.3.0 may never reach the next leader.
    wait_for("the leader to be connected again", leader.is_ready)
    leader.pause()
    assert patient_lab.leading() is leader
    other = wait_for("another leader", lambda: found if (found := patient_lab.leading()) is not leader else None)
    leader.resume()
    wait_for("the first one to serve", lambda: leader.is_ready() or not leader.running)
    assert leader.running, leader.last_words()
    assert patient_lab.leading() is other


@pytest.mark.e2e
@pytest.mark.parametrize("lab", ["2.3.0", "1.20.5"], indirect=True)
def test_stop_leaves_no_process(lab: Lab, alive: Alive) -> None:
    """Of ZooKeeper, the JobManagers and the TaskManager; it may be called twice. It comes last: the tests above share the cluster."""
    pids = [process.pid for process in (lab.zookeeper, *lab.jobmanagers, lab.taskmanager)]
    assert all(map(alive, pids))
    lab.stop()
    lab.stop()
    assert not any(map(alive, pids))
