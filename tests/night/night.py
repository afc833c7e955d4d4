"""One night: a cluster, the sidecar beside it, who gets its messages, and what is done to them in turn."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from msgspec import Struct

from sidecar.lab.managers import JobManager
from sidecar.lab.receivers import HttpReceiver, ReceivedMessage
from tests.kit.recovery_scene import LABS, PICTURE_SECONDS, RetainingLab, Store
from tests.kit.sidecar_process import Sidecar, command
from tests.kit.waiting import wait_for
from tests.night.scenarios import Scenario
from tests.night.surfaces import Surface, Surfaces
from tests.night.truth import Sample, Truth

JOBS: Final = 2
_PATIENCE: Final = 240.0
_CALM_SECONDS: Final = 20.0
"""After the end of a scenario: in which its last message arrives."""
_LONGEST: Final = 600.0
"""For a scenario's end. Then it counts as one that never came."""

T = TypeVar("T")


class Played(Struct, frozen=True):
    """A scenario, what was true meanwhile, and what was said. Times are seconds since the epoch."""

    name: str
    began: float
    acted: float
    """When the act was done."""
    ended: float
    led_before: str
    """The name of the JobManager that led."""
    expected_jobs: int
    truth: Sequence[Sample]
    messages: Sequence[ReceivedMessage]
    surfaces: Sequence[Surface]
    records: Sequence[Mapping[str, Any]]


class Night:
    """A lab with two JobManagers and JOBS jobs, `run` beside it with the shipped rules, and a webhook."""

    def __init__(self, lab: RetainingLab, store: Store, folder: Path) -> None:
        """`lab` runs."""
        self.lab = lab
        self.store = store
        self.folder = folder
        self.jobs: list[str] = []
        self.people = HttpReceiver()
        self.people.start()
        cluster = (
            f"flink_conf_dir: {lab.conf_dir}\n"
            f"evidence: {{capture: [processes, flink_rest], log: {lab.folder}, flink_rest: {{patience: 1m}}}}"
        )
        self.sidecar = Sidecar(folder / "sidecar", cluster, [self.people.url], group_wait="5s", group_interval="1m")
        self.truth = Truth(lab)
        self.surfaces = Surfaces(self.sidecar)

    def __enter__(self) -> Self:
        self.sidecar.start()
        self.sidecar.wait_ready()
        self.truth.start()
        self.surfaces.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.surfaces.stop()
        self.truth.stop()
        if self.sidecar.process and self.sidecar.process.poll() is None:
            self.sidecar.kill()
        self.people.stop()

    def play(self, name: str, scenario: Scenario) -> Played:
        """Let it happen, and wait for its end: the status that is true then, or _LONGEST."""
        self._stand_by()
        began, messages, records = time.time(), len(self.people.received), len(self.sidecar.records())
        led_before = self.leader().name
        scenario.act(self)
        acted = time.time()
        deadline = acted + _LONGEST
        while time.time() < deadline and not self._is_over(scenario, acted):
            time.sleep(1)
        time.sleep(_CALM_SECONDS)
        ended = time.time()
        return Played(
            *(name, began, acted, ended, led_before, len(self.jobs)),
            self.truth.between(began, ended),
            self.people.received[messages:],
            self.surfaces.between(began, ended),
            self.sidecar.records()[records:],
        )

    def _is_over(self, scenario: Scenario, acted: float) -> bool:
        latest = self.surfaces.latest
        return latest is not None and latest.at > acted + _CALM_SECONDS and latest.status in scenario.final

    def _stand_by(self) -> None:
        """Everything runs, as the sidecar knows, and the jobs have checkpoints."""
        self.start_all()
        self.lab.taskmanager.start()
        self.jobs = [job for job in self.jobs if self.lab.job_state(job) == "RUNNING"]
        while len(self.jobs) < JOBS:
            self.jobs.append(self.lab.submit_job())
        for job in self.jobs:
            self.lab.wait_for_job(job)
        self.annotate_last()
        self.until("status OK", lambda: self.surfaces.latest and self.surfaces.latest.status == "OK")
        began = time.monotonic()
        self.until("a picture", lambda: time.monotonic() - began > PICTURE_SECONDS)

    # -- what scenarios use ------------------------------------------------------------------------------------------------

    def leader(self) -> JobManager:
        return self.until("a leader", self.lab.leading)

    @property
    def any_leader(self) -> JobManager:
        """The one that led last, while the store is away."""
        name = next(sample.leader for sample in reversed(self.truth.between(0, time.time())) if sample.leader)
        return next(one for one in self.lab.jobmanagers if one.name == name)

    def standby(self) -> JobManager:
        leader = self.leader()
        return next(one for one in self.lab.jobmanagers if one.running and one is not leader)

    def start_all(self) -> None:
        """The first two JobManagers, and a TaskManager that has ended."""
        for server in (*self.lab.jobmanagers[:2], self.lab.taskmanager):
            server.launch()
        for server in (*self.lab.jobmanagers[:2], self.lab.taskmanager):
            server.await_ready()

    def store_down(self) -> None:
        self.lab.zookeeper.kill()

    def store_up(self) -> None:
        self.lab.zookeeper.start()

    def store_pause(self) -> None:
        self.lab.zookeeper.pause()

    def store_resume(self) -> None:
        self.lab.zookeeper.resume()

    def until_all_run(self) -> None:
        for job in self.jobs:
            self.lab.wait_for_job(job)

    def until(self, what: str, probe: Callable[[], T | None]) -> T:
        return wait_for(what, probe, _PATIENCE)

    def drill(self, verb: str, *arguments: str) -> None:
        self.command("drill", verb, "--config", str(self.sidecar.config), *arguments)

    def silence(self, duration: str) -> None:
        matcher = ("--matcher", 'cluster_id="lab"')
        about = ("--duration", duration, "--comment", "night", "--author", "ann")
        self.command("silence", "add", "--config", str(self.sidecar.config), *matcher, *about)

    def annotate_last(self) -> None:
        """Somebody knows of the last failover: what it has lost is not reported any more."""
        episodes = [record for record in self.sidecar.records() if record["type"] == "episode"]
        if episodes:
            arguments = ("--config", str(self.sidecar.config), "--reason", "night")
            self.command("annotate", episodes[-1]["episode_id"], *arguments)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        ended = command(*arguments)
        assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
        return ended

    def reload(self) -> None:
        assert self.sidecar.process is not None
        self.sidecar.process.send_signal(signal.SIGHUP)


def play(
    store: str, version: str, scenarios: Mapping[str, Scenario], folder: Path, say: Callable[[str], None]
) -> list[Played]:
    """Every scenario, one after the other, on a cluster of its own in `folder`."""
    played = []
    with LABS[store](folder, version) as (lab, stored), Night(lab, stored, folder) as night:
        for number, (name, scenario) in enumerate(scenarios.items(), 1):
            say(f"{time.strftime('%H:%M:%S')} {number} of {len(scenarios)}: {name}")
            played.append(night.play(name, scenario))
            for message in played[-1].messages:
                say(f"    +{message.at - played[-1].began:.0f} s  {message.title}")
    shutil.rmtree(folder / "lab", ignore_errors=True)
    return played
