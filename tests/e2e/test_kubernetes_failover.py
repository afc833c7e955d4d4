"""Real Flink with its leaders in the ConfigMaps of a real API server: what is reported of each way in which a leader goes, and when."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.kubernetes_server import Kubernetes
from tests.kit.sidecar_process import COMMAND, Sidecar, command
from tests.kit.waiting import LOADED_MACHINE_SECONDS, wait_for
from tests.lab.flink import Lab
from tests.lab.managers import JobManager

COMPONENTS = {"resource_manager", "dispatcher", "rest_server", "job"}
OLD = "1.14.6"
LEASE = timedelta(seconds=3)
NOTICED = LEASE.total_seconds() + 2 + LOADED_MACHINE_SECONDS
"""How long a silent leader may be believed: as long as its lease and 2 s. The exact figure is in docs/project/adr/0010."""

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, apiserver: Path) -> Iterator[Kubernetes]:
    server = Kubernetes(tmp_path_factory.mktemp("kubernetes"), apiserver)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def lab(request: pytest.FixtureRequest, kubernetes: Kubernetes, tmp_path: Path) -> Iterator[Lab]:
    """Flink of the version that the test is parametrized with, and no ConfigMap left by an earlier one."""
    kubernetes.server.ask("DELETE", "/api/v1/namespaces/default/configmaps")
    with Lab(tmp_path / "lab", request.param, kubeconfig=kubernetes.kubeconfig(), session_timeout=LEASE) as cluster:
        yield cluster


class Witness:
    """`run` and `watch` beside one cluster, and what `run` recorded."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        cluster = f"flink_conf_dir: {lab.conf_dir}\nevidence: {{capture: [processes, flink_rest]}}"
        self.sidecar = Sidecar(folder / "sidecar", cluster, [])
        self.sidecar.start()
        self.watch_file = folder / "watch.jsonl"
        with self.watch_file.open("wb") as file:
            watch = [*COMMAND, "watch", "--output", "json", "--flink-conf", str(lab.conf_dir)]
            self.watching = subprocess.Popen(watch, stdout=file, stderr=subprocess.DEVNULL)

    def wait_ready(self) -> None:
        self.sidecar.wait_ready()
        wait_for("watch to see the leaders", lambda: len(self.watched()) >= len(COMPONENTS))

    def watched(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in self.watch_file.read_text().splitlines(keepends=True) if line.endswith("\n")
        ]

    def evidence(self, kind: str = "", outcome: str = "") -> list[dict[str, Any]]:
        """All pieces, or those of this kind with this outcome."""
        found = [record for record in self.sidecar.records() if record["type"] == "evidence"]
        return [piece for piece in found if not kind or (piece["kind"], piece["outcome"]) == (kind, outcome)]

    def wait(self, state: Callable[[dict[str, Any]], bool], since: float = 0.0) -> list[dict[str, Any]]:
        """All transitions since then, as soon as the last one of each component left it in this state."""

        def reached() -> list[dict[str, Any]] | None:
            seen = [transition for transition in self.sidecar.transitions() if at(transition) >= since]
            last = {transition["component"]: transition for transition in seen}
            return seen if last.keys() == COMPONENTS and all(map(state, last.values())) else None

        return wait_for(f"each component to reach this: {state.__name__}", reached)

    def stop(self) -> None:
        self.watching.terminate()
        assert self.watching.wait(timeout=15) == 0
        assert self.sidecar.stop() == 0


@pytest.fixture
def witness(lab: Lab, tmp_path: Path) -> Iterator[Witness]:
    """Beside a cluster with a job: three JobManagers, or two where each component has a leader of its own."""
    lab.start(jobmanagers=1 if lab.flink_version == OLD else 3)
    lab.submit_job(wait_for_checkpoint=False)
    if lab.flink_version == OLD:  # of two that start together each may lead a part of the components
        lab.add_jobmanager()
    beside = Witness(lab, tmp_path)
    try:
        beside.wait_ready()
        yield beside
    finally:
        beside.watching.kill()
        beside.watching.wait()
        beside.sidecar.end()


def at(transition: dict[str, Any]) -> float:
    return datetime.fromisoformat(transition["observed_at"]).timestamp()


def has_leader(transition: dict[str, Any]) -> bool:
    return transition["after_session_id"] is not None


def has_no_leader(transition: dict[str, Any]) -> bool:
    return not has_leader(transition)


def assert_found(transitions: list[dict[str, Any]]) -> None:
    """Each component was found with a leader."""
    assert {t["component"]: t["pattern"] for t in reversed(transitions)} == dict.fromkeys(COMPONENTS, "?->A")


def assert_failed_over(transitions: list[dict[str, Any]], died: float) -> None:
    """What followed the death: each component lost its leader in time, and got another one, of another process, afterwards.

    On a busy machine the takeover and the next leader's address may be observed at once: then there was no vacancy. The next one may lose
    its lease as well, though it lives, where it could not renew it for 3 s. That is a failover like any other, of the same process perhaps.
    """
    for component in COMPONENTS:
        first, *more = (t for t in transitions if t["component"] == component)
        granted = first if first["pattern"] == "A->B" else more.pop(0)
        assert (first["pattern"], granted["pattern"]) in {("A->null", "null->B"), ("A->B", "A->B")}
        assert [t["pattern"] for t in more[::2]] == ["A->null"] * (len(more) // 2)
        assert all(map(has_leader, more[1::2]))
        assert 0 <= at(first) - died <= NOTICED
        assert granted["after_session_id"] not in {None, first["before_session_id"]}
        assert granted["same_process"] is False
        if granted is not first:
            assert first["reason"]
            assert granted["vacant_seconds"] == pytest.approx(at(granted) - at(first), abs=0.5)
        assert_bounded(granted, at(granted) - died, withdrawn=first["reason"] == "the address was removed")


def assert_bounded(granted: dict[str, Any], true: float, *, withdrawn: bool) -> None:
    """The time without a working leader lies between its bounds; one that withdrew was alive until then, however long its end took.

    They are not known where the leader died before a renewal of its lease was seen.
    """
    at_least, at_most = granted["downtime_seconds_at_least"], granted["downtime_seconds_at_most"]
    if withdrawn:
        assert at_least == at_most == granted["vacant_seconds"]
    elif at_most is not None:
        # It may renew its lease while it ends, and on a busy machine the renewal may be seen late.
        assert at_least - 0.5 <= true <= at_most + LOADED_MACHINE_SECONDS


def assert_left_alone(transitions: list[dict[str, Any]], died: float) -> None:
    """What followed the death of the last JobManager: no leader any more, for its lease ran out. Not before it could have."""
    assert sorted((t["component"], t["pattern"]) for t in transitions) == sorted(
        (name, "A->null") for name in COMPONENTS
    )
    for revoked in transitions:
        assert LEASE.total_seconds() <= at(revoked) - died <= NOTICED
        assert "not renewed" in revoked["reason"]


def assert_all_agree(witness: Witness) -> int:
    """`who` names nobody, `watch` printed the very transitions that `run` recorded. How often the dispatcher lost its leader."""
    count = len(witness.sidecar.transitions())
    who = command("who", "--flink-conf", str(witness.lab.conf_dir), "--output", "json")
    assert {json.loads(line)["state"] for line in who.stdout.splitlines()} == {"vacant"}, who.stderr
    wait_for("watch to print as many", lambda: len(witness.watched()) >= count)
    witness.stop()
    recorded = witness.sidecar.transitions()
    assert len(recorded) == count
    assert _by_component(witness.watched()) == _by_component(recorded)
    return sum((t["component"], t["pattern"]) == ("dispatcher", "A->null") for t in recorded)


def _by_component(transitions: list[dict[str, Any]]) -> dict[tuple[str, str | None], list[str]]:
    """Ids in their order: of two components, whose leases are in two ConfigMaps, two observers may notice either first."""
    ids_of: dict[tuple[str, str | None], list[str]] = {}
    for transition in transitions:
        if transition["kind"] != "DISCOVERED":
            ids_of.setdefault((transition["component"], transition["job_id"]), []).append(transition["id"])
    return ids_of


def assert_processes_were_looked_at(evidence: list[dict[str, Any]], times: int) -> None:
    """At each failover, also where it came before the last one was over; each that left somebody shows who was there."""
    opened = sorted({piece["asked_at"] for piece in evidence if piece["occasion"] == "opened"})
    assert len(opened) == times
    for asked_at in opened[:-1]:
        captured = {p["kind"] for p in evidence if (p["asked_at"], p["outcome"]) == (asked_at, "captured")}
        assert captured == {"process", "thread_dump"}


def next_leader(lab: Lab, last: JobManager) -> JobManager:
    return wait_for("another JobManager to lead", lambda: found if (found := lab.leading()) is not last else None)


@pytest.mark.parametrize("lab", ["2.3.0", "1.20.5"], indirect=True)
def test_each_way_in_which_a_leader_goes(lab: Lab, witness: Witness) -> None:
    """Killed, frozen, ended in order, killed with nobody left: each is one vacancy of each component, and nothing else is ever reported."""
    first = lab.wait_for_leader()
    assert_found(witness.wait(has_leader))

    died = time.time()
    first.kill()
    next_leader(lab, first)
    assert_failed_over(witness.wait(has_leader, died), died)
    wait_for("what the next leader says of the job", lambda: witness.evidence("job", "captured"))

    second = lab.wait_for_leader()
    died = time.time()
    second.pause()
    next_leader(lab, second)
    assert_failed_over(witness.wait(has_leader, died), died)

    def frozen() -> set[str]:
        failed = witness.evidence("thread_dump", "failed")
        return {piece["subject"] for piece in failed if piece["detail"].startswith("the process is stopped")}

    (subject,) = wait_for("a look at the one that stands still", frozen)
    assert subject.startswith(f"pid {second.pid} (")
    third = lab.wait_for_leader()
    second.resume()  # it learns that it leads no longer, and stands by: which is no news

    died = time.time()
    third.terminate()
    assert next_leader(lab, third) is second
    assert_failed_over(witness.wait(has_leader, died), died)

    died = time.time()
    second.kill()
    assert_left_alone(witness.wait(has_no_leader, died), died)
    vacancies = assert_all_agree(witness)
    assert_processes_were_looked_at(witness.evidence(), vacancies)


@pytest.mark.parametrize("lab", [OLD], indirect=True)
def test_a_config_map_for_each_component(lab: Lab, witness: Witness) -> None:
    """Flink up to 1.14, which clears nothing when it ends in order: a takeover of each lease, and leases that run out."""
    first = lab.wait_for_leader()
    assert_found(witness.wait(has_leader))
    died = time.time()
    first.kill()
    second = next_leader(lab, first)
    assert_failed_over(witness.wait(has_leader, died), died)
    died = time.time()
    second.terminate()
    assert_left_alone(witness.wait(has_no_leader, died), died)
    assert_all_agree(witness)
