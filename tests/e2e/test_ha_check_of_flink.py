"""`ha check` of a real Flink: what it keeps in ZooKeeper while it runs, without a standby, and when it is gone."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from sidecar.app import ha_checking
from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.ha.results import CheckResult
from sidecar.core.moment import SECOND
from sidecar.settings import load
from tests.kit.driver_recorder import now
from tests.kit.waiting import until, wait_for
from tests.kit.zookeeper_client import connected
from tests.lab.flink import Lab
from tests.lab.zookeeper import ZooKeeper


def checks(lab: Lab, cluster_id: str | None = None) -> dict[str, CheckResult]:
    """Of Flink's own configuration, or of another cluster beside it."""
    place = (
        {"zookeeper": lab.zookeeper.address, "cluster_id": cluster_id} if cluster_id else {"flink_conf": lab.conf_dir}
    )
    (cluster,) = ha_checking.check_all(load(None, place, secrets=False))
    return {check.check: check for check in cluster.checks}


def risks(results: dict[str, CheckResult]) -> set[str]:
    return {name for name, each in results.items() if each.verdict is CheckVerdict.RISK}


def test_each_risk_of_a_real_flink(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two days later by the sidecar's clock: what is led and in a store is no leftover, whatever its age; what is not, is one."""
    job = lab.submit_job()
    monkeypatch.setattr(ha_checking, "_wall", lambda: now().wall + 2 * 86_400 * SECOND)
    results = checks(lab)
    ours = {"ensemble_size", "open_acls", "storage_dir", "checkpoint_dir", "tolerate_suspended"}
    assert risks(results) == ours
    assert {name for name, result in results.items() if result.verdict is CheckVerdict.UNKNOWN} == {"failure_tolerance"}
    assert results["standby"].text == "2 JobManagers contend for leadership"
    assert results["session_timeout"].text == "Flink's session timeout of 5 s is granted"
    assert "leftover_clusters" not in risks(checks(lab, "beside"))

    with connected(lab.zookeeper.address) as client:
        client.delete(f"/flink/lab/execution-plans/{job}", recursive=True)
    results = checks(lab)
    assert risks(results) == ours | {"leftover_jobs"}
    assert results["leftover_jobs"].advice.endswith(f"deleteall /flink/lab/jobs/{job}")

    leader = lab.wait_for_leader()
    for result in lab.jobmanagers:
        if result is not leader:
            result.kill()
    wait_for("the standby's session to expire", lambda: "standby" in risks(checks(lab)))
    leader.kill()

    def left() -> CheckResult | None:
        results = checks(lab, "beside")
        return results["leftover_clusters"] if "leftover_clusters" in risks(results) else None

    dead = wait_for("the leader's session to expire", left)
    assert dead.text.startswith("1 cluster that nobody leads: lab (last written 2 d")
    assert dead.advice.endswith("deleteall /flink/lab")


class CappedZooKeeper(ZooKeeper):
    """It grants sessions of 20 s at most."""

    def build_command(self) -> Sequence[str]:
        command = super().build_command()
        with (self._folder / "zoo.cfg").open("a") as config:
            config.write("maxSessionTimeout=20000\n")
        return command


@pytest.mark.parametrize(("server", "verdict"), [(CappedZooKeeper, CheckVerdict.RISK), (ZooKeeper, CheckVerdict.PASS)])
def test_the_session_timeout_that_is_granted_decides(
    server: type[ZooKeeper], verdict: CheckVerdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flink asks for 60 s, and its leader stands still for 35 s: with the cap that was a RISK another JobManager leads, without it none."""
    monkeypatch.setattr("tests.lab.flink.ZooKeeper", server)
    with Lab(tmp_path / "lab", session_timeout=timedelta(seconds=60)) as lab:
        lab.start()
        leader = lab.wait_for_leader()
        result = checks(lab)["session_timeout"]
        leader.pause()
        moved = until(lambda: lab.leading() not in {None, leader}, 35, 0.2)
        leader.resume()
    assert result.verdict is verdict
    assert moved == (verdict is CheckVerdict.RISK)
