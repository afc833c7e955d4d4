"""HAProxy, as docs/how-to/load-balancers.md configures it, before two real JobManagers."""

from functools import partial
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.kit.load_balancer_scene import load_balancer_scene, wrong_answers
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.managers import JobManager

COMPONENT = "component=dispatcher"


@pytest.mark.e2e
def test_requests_follow_the_leader(tmp_path: Path) -> None:
    """Whether it is killed or hangs, no answer comes from a JobManager that does not lead, and the next leader answers; without /leader
    half of the answers are a standby's. While ZooKeeper does not answer, nobody is a leader or a standby.
    """
    with load_balancer_scene(tmp_path) as flink:
        leader, standby = flink.pair()
        for jobmanager, statuses in ((leader, (200, 503)), (standby, (503, 200))):
            sidecar = flink.sidecars[jobmanager.name]
            assert tuple(sidecar.get(f"{path}?{COMPONENT}")[0] for path in ("/leader", "/standby")) == statuses
        for remove in (JobManager.kill, JobManager.pause):
            failover = flink.fail_over(remove)
            answers = [answer for answer in flink.following.answers if failover.began <= answer.sent <= failover.ended]
            assert wrong_answers(answers, flink.history) == []
            assert any(answer.ok for answer in answers)
        assert wrong_answers(flink.simple.answers, flink.history)
        flink.lab.zookeeper.pause()
        for sidecar in flink.sidecars.values():
            for path in ("/leader", "/standby"):
                wait_for("503", partial(is_blind, sidecar, path))
        wait_for("no answer", lambda: flink.following.answers[-1].server is None)


def is_blind(sidecar: Sidecar, path: str) -> bool:
    """Whether it says so."""
    status, line = sidecar.get(f"{path}?{COMPONENT}")
    return status == HTTPStatus.SERVICE_UNAVAILABLE and line.startswith("blind: ")
