"""One night: a cluster, a sidecar beside it, who gets its messages, and what is done to them in turn."""

import itertools
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from sidecar.core.failover.deaths import RECORDED_AFTER
from sidecar.core.moment import SECOND
from tests.kit.recovery_scene import LABS, PICTURE_SECONDS, RetainingLab, Store
from tests.kit.relay import Wire
from tests.kit.sidecar_process import Sidecar, command
from tests.kit.waiting import wait_for
from tests.lab.lab_error import LabError
from tests.lab.managers import JobManager
from tests.night.arrivals import Arrivals, Said, arrivals, seconds_of
from tests.night.makers import Deployed
from tests.night.scenario import Scenario
from tests.night.surfaces import Surface, Surfaces
from tests.night.truth import End, Sample, Truth, place

JOBS: Final = 2
GROUP_WAIT: Final = 5.0
_GROUP_INTERVAL: Final = 10.0
_PATIENCE: Final = 180.0
_CALM_SECONDS: Final = 14.0
"""So long the end of a scenario has to last: a message about it arrives after a group's interval."""
_DEATH_SECONDS: Final = RECORDED_AFTER / SECOND + 3
"""So long after a failover its death is waited for."""
_UNSAID_SECONDS: Final = 45.0
"""So long its last message is waited for."""
_LONGEST: Final = 240.0
"""For a scenario's end. Then it counts as one that never came."""
_KEPT: Final = frozenset({"status", "episode", "death", "recovery"})
"""Types of records that are judged."""

T = TypeVar("T")


class Played(Struct, frozen=True):
    """A scenario, what was true meanwhile, and what was said. Times are in seconds since the epoch."""

    name: str
    store: str
    flink: str
    began: float
    acted: float
    """When the act was done."""
    ended: float
    led_before: str
    """`host:port` of the JobManager that led."""
    jobs: int
    """That are to run in the end."""
    truth: Sequence[Sample]
    ends: Sequence[End]
    said: Sequence[Said]
    surfaces: Sequence[Surface]
    records: Sequence[Mapping[str, Any]]


class Night:
    """A lab with two JobManagers and JOBS jobs, and for each scenario a new `run` beside it with the shipped rules."""

    sidecar: Sidecar
    wire: Wire
    """The sidecar's way to the store, if there is one that can be cut."""
    surfaces: Surfaces

    def __init__(self, lab: RetainingLab, store: Store, folder: Path, everywhere: Arrivals, kind: str) -> None:
        """`lab` runs. `kind`: of its store."""
        self.lab = lab
        self.store = store
        self.folder = folder
        self.jobs: list[str] = []
        self._kind = kind
        self._arrivals = everywhere
        self._numbers = itertools.count(1)
        self.truth = Truth(lab)
        self._deployed = Deployed(lab.kubernetes.server, self.truth, lab.jobmanagers[:2]) if lab.kubernetes else None

    def play(self, name: str, scenario: Scenario) -> Played:
        """Let it happen, and wait for its end: the status that is true then, and a message about it."""
        self._stand_by(scenario)
        with self._watched():
            self.truth.notes_ends()
            began, led_before = time.time(), place(self.leader())
            scenario.act(self)
            acted = time.time()
            self._wait_for_the_end(scenario, began, acted)
            ended = time.time()
            return Played(
                *(name, self._kind, self.lab.flink_version, began, acted, ended, led_before, len(self.jobs)),
                self.truth.between(began, ended),
                self.truth.ends(began, ended),
                self._arrivals.between(began, ended),
                [*self.surfaces.between(began, ended), self.surfaces.ask(with_commands=True)],
                [record for record in self.sidecar.records() if record["type"] in _KEPT],
            )

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """A sidecar of its own, which knows that all is well; what others did is no history of this one."""
        folder = self.folder / f"sidecar-{next(self._numbers):03}"
        conf_dir = self.lab.conf_dir
        if self.lab.can_be_cut:
            self.wire = self.lab.new_wire()
            conf_dir = self.lab.conf_by(self.wire, folder / "conf")
        plans = "kubernetes: {plans: true}\n" if self._deployed else ""
        cluster = (
            f"flink_conf_dir: {conf_dir}\n{plans}{self._arrivals.settings}"
            f"route: {{receiver: ops, group_wait: {GROUP_WAIT:g}s, group_interval: {_GROUP_INTERVAL:g}s}}\n"
            f"evidence: {{capture: [processes, flink_rest], log: {self.lab.folder}, flink_rest: {{patience: 1m}}}}"
        )
        self.sidecar = Sidecar(folder, cluster, [])
        self.surfaces = Surfaces(self.sidecar)
        self.store.delete_ledgers()
        self.sidecar.start()
        try:
            self.sidecar.wait_ready()
            self.surfaces.start()
            self.until("status OK", lambda: self.surfaces.latest and self.surfaces.latest.status == "OK")
            began = time.monotonic()
            self.until("a picture", lambda: time.monotonic() - began > PICTURE_SECONDS)
            yield
        finally:
            self.surfaces.stop()
            if self.lab.can_be_cut:
                self.wire.close()
            self.sidecar.end()

    def _wait_for_the_end(self, scenario: Scenario, began: float, acted: float) -> None:
        """Its status lasts, its recovery is recorded, and it is said; or that is not to be expected any more."""
        since: float | None = None
        while (now := time.time()) < acted + _LONGEST:
            time.sleep(1)
            latest = self.surfaces.latest
            if latest is None or latest.at < acted + 2 or latest.status not in scenario.final:
                since = None
                continue
            since = since or now
            webhook = [one for one in self._arrivals.between(began, now) if one.channel == "webhook" and one.status]
            told = (not webhook and not scenario.said) or (webhook and webhook[-1].status in scenario.final)
            if now - since > (_CALM_SECONDS if told and self._is_assessed() else _UNSAID_SECONDS):
                return

    def _is_assessed(self) -> bool:
        """Whether the recoveries from all failovers are recorded, and their deaths as far as they will be."""
        records = self.sidecar.records()
        episodes = {record["id"]: record["observed_at"] for record in records if record["type"] == "episode"}
        recovered, dead = (
            {record["episode_id"] for record in records if record["type"] == kind} for kind in ("recovery", "death")
        )
        last = max((seconds_of(at) for episode, at in episodes.items() if episode not in dead), default=0.0)
        return episodes.keys() <= recovered and time.time() > last + _DEATH_SECONDS

    def _stand_by(self, scenario: Scenario) -> None:
        """Two JobManagers, a TaskManager and the jobs run, with checkpoints."""
        self.store_resume()
        for extra in self.lab.jobmanagers[2:]:
            extra.kill()
        if self._deployed and not self._deployed.is_whole(scenario.maker):
            self._deployed.adopt(scenario.maker)
        self.start_all()
        self.leader()
        self.jobs = [job for job in self.jobs if self._still_runs(job)]
        while len(self.jobs) < JOBS:
            self.jobs.append(self.lab.submit_job())
        self.until_all_run()

    def _still_runs(self, job: str) -> bool:
        try:
            self.lab.wait_for_job(job, timeout=45)
        except LabError:
            return False
        return True

    # -- what scenarios use ------------------------------------------------------------------------------------------------

    @property
    def deployed(self) -> Deployed:
        assert self._deployed, "this needs Kubernetes"
        return self._deployed

    def leader(self) -> JobManager:
        return self.until("a leader", self.lab.leading)

    def standby(self) -> JobManager:
        leader = self.leader()
        return next(one for one in self.lab.jobmanagers if one.running and one is not leader)

    def kill(self, *managers: JobManager) -> None:
        """kill -9."""
        with self.truth.ending("killed", *managers):
            for manager in managers:
                manager.kill()

    def terminate(self, manager: JobManager) -> None:
        """SIGTERM, and wait for its end."""
        with self.truth.ending("stopped", manager):
            manager.terminate()
            manager.wait(60)

    def start_all(self) -> None:
        """The first two JobManagers, and a TaskManager, as far as they have ended."""
        for server in (*self.lab.jobmanagers[:2], self.lab.taskmanager):
            server.launch()
        for server in (*self.lab.jobmanagers[:2], self.lab.taskmanager):
            self._await(server)

    def supervise(self, seconds: float = 25.0) -> None:
        """As `start_all`, and again for those that end themselves some seconds after the store is back."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for server in (*self.lab.jobmanagers[:2], self.lab.taskmanager):
                server.launch()
            time.sleep(1)
        self.start_all()

    def _await(self, server: Any) -> None:
        """Until it serves; one that ends itself meanwhile, for want of a store, is started again, as its supervisor would."""
        for _ in range(3):
            try:
                server.await_ready()
            except LabError:
                if server.running:
                    raise
                server.launch()
            else:
                return

    def add_jobmanager(self) -> None:
        """A third one."""
        if len(self.lab.jobmanagers) > 2:
            self.lab.jobmanagers[2].start()
        else:
            self.lab.add_jobmanager()

    @property
    def _server(self) -> Any:
        return self.lab.kubernetes.server if self.lab.kubernetes else self.lab.zookeeper

    def cut_off(self, wire: Wire, seconds: float) -> None:
        """Whoever takes this way to the store."""
        wire.shut()
        time.sleep(seconds)
        wire.mend()

    def store_down(self) -> None:
        self.truth.store = False
        self._server.kill()

    def store_up(self) -> None:
        self._server.start()
        self.truth.store = True

    def store_pause(self) -> None:
        self.truth.store = False
        self._server.pause()

    def store_resume(self) -> None:
        self._server.resume()
        self._server.start()
        self.truth.store = True

    def until_all_run(self) -> None:
        for job in self.jobs:
            self.lab.wait_for_job(job)

    def until(self, what: str, probe: Callable[[], T | None]) -> T:
        return wait_for(what, probe, _PATIENCE)

    def drill(self, verb: str, *arguments: str) -> None:
        self.command("drill", verb, "--config", str(self.sidecar.config), *arguments)

    def silence(self, duration: str) -> None:
        matcher = ("--matcher", f'cluster_id="{self.lab.cluster_id}"')
        about = ("--duration", duration, "--comment", "night", "--author", "ann")
        self.command("silence", "add", "--config", str(self.sidecar.config), *matcher, *about)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        ended = command(*arguments)
        assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
        return ended

    def reload(self) -> None:
        assert self.sidecar.process is not None
        self.sidecar.process.send_signal(signal.SIGHUP)


def play(
    store: str, version: str, scenarios: Sequence[tuple[str, Scenario]], folder: Path, say: Callable[[str], None]
) -> Iterator[Played]:
    """Every scenario, one after the other, on a cluster in `folder`. One that cannot be played is said, and left out."""
    can_be_cut = any(scenario.cuts for _, scenario in scenarios)
    with LABS[store](folder, version, can_be_cut=can_be_cut) as (lab, stored), arrivals() as everywhere:
        night = Night(lab, stored, folder, everywhere, store)
        night.truth.start()
        try:
            for number, (name, scenario) in enumerate(scenarios, 1):
                say(f"{time.strftime('%H:%M:%S')} {number} of {len(scenarios)}: {name}")
                try:
                    played = night.play(name, scenario)
                except (LabError, AssertionError, OSError) as error:
                    say(f"    not played: {error}")
                    continue
                for one in played.said:
                    say(f"    +{one.at - played.began:.0f} s  {one.channel}  {one.title}")
                yield played
        finally:
            night.truth.stop()
    shutil.rmtree(folder / "lab", ignore_errors=True)
