"""Three sidecars of one cluster, one paging service, and what may go wrong between them: an outage of the service, kill -9 anywhere.

Core, ledger, `Notifier` and senders are the real ones; the store of the ledger is memory, and time is simulated. An attempt runs in the
thread of the scene. Unless `children` is set it runs the sender in this process, which saves half a second of CPU for each.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import patch

from msgspec import convert
from msgspec.structs import replace

from sidecar.core.alerting.outbox import Delivery
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliverySettled, PolicyLoaded
from sidecar.core.policy.policy import Destination, Policy, Rule, Severity
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from sidecar.net.endpoints import Endpoint
from sidecar.runtime.child import Child
from sidecar.runtime.clock import Clock
from sidecar.sinks.notify import ledger_access, ledger_client, notifier, sender
from sidecar.sinks.notify.ledger_client import SharedLedger
from sidecar.sinks.notify.notifier import Notifier
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.cluster import CLUSTER, DISPATCHER, RESOURCE_MANAGER, REST_SERVER, A, job_manager
from tests.kit.core_sidecar import POLICY, Sidecar
from tests.kit.fake_flink import Flink
from tests.kit.memory_ledger import Memory, Shared
from tests.kit.paging import Internet

NAMES: Final = ("a", "b", "c")
VACANT: Final = Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, hold_for=30 * SECOND)
CHANGED: Final = Rule("FlinkLeaderChanged", Trigger.LEADER_CHANGED)


class KilledError(Exception):
    """The sidecar that was sending is gone."""


class Watcher(Sidecar):
    """A sidecar whose messages are sent."""

    def __init__(self, scene: "Scene", name: str) -> None:
        self.scene = scene
        self.name = name
        self.down_until = 0
        self.notifier = self._new_notifier()
        super().__init__(scene.flink, replace(scene.policy, observer=name))

    def _new_notifier(self) -> Notifier:
        clock = cast("Clock", lambda: self.moment)
        ledger = SharedLedger(Memory(self.scene.shared), self.name, clock, alone_if_refused=False)
        return Notifier({"ops#0": self.scene.endpoint}, lambda *_: None, {CLUSTER: ledger})

    def _send(self, delivery: Delivery) -> None:
        self.sent.append(delivery)
        self.scene.sending = self
        attempt = self.notifier._attempt(delivery)
        self._step(DeliverySettled(self.moment, delivery.id, *attempt))

    def restarts(self) -> None:
        """Kill -9, and a new process on the same disk: what it had not written down is lost."""
        self.notifier = self._new_notifier()
        self.is_killed()
        self.connects()


class Scene:
    """Flink with one job led by A, three sidecars, and a service."""

    def __init__(self, endpoint: Endpoint, internet: Internet, seed: int, *rules: Rule, children: bool = False) -> None:
        self.endpoint = endpoint
        self.internet = internet
        self.moments = Random(seed)
        self.children = children
        self.flink = Flink().submit().elect(A)
        self.shared = Shared()
        self.kills = 0
        self.kill_chance = 0.0
        """That the sidecar whose request was taken is killed before it marks it."""
        self.dies = False
        self.sending: Watcher | None = None
        self.outage_until = 0
        destination = Destination("ops", 0, True, endpoint.in_order, endpoint.keeps_incidents)
        route = Route("ops", group_interval=60 * SECOND, repeat_interval=600 * SECOND)
        self.policy: Policy = replace(POLICY, rules=rules, route=route, receivers={"ops": (destination,)})
        internet.fault = self._fault
        internet.took = self._took
        self.sidecars = [Watcher(self, name) for name in NAMES]
        for sidecar in self.sidecars:
            sidecar.connects().waits(60, tick=5)

    @property
    def now(self) -> int:
        return max(sidecar.now for sidecar in self.sidecars)

    def waits(self, seconds: float, tick: int = 1) -> None:
        """All sidecars live through it, tick by tick, in any order."""
        for _ in range(round(seconds / tick)):
            for sidecar in self.moments.sample(self.sidecars, len(self.sidecars)):
                self._lives(sidecar, tick)

    def sees(self) -> None:
        """Each sidecar that is up reads what changed, a moment apart."""
        changed = list(self.flink.znodes.changed)
        for sidecar in self.moments.sample(self.sidecars, len(self.sidecars)):
            if sidecar.now >= sidecar.down_until:
                self.flink.znodes.changed[:] = changed
                self._while_it_lives(sidecar, sidecar.sees_changes)
            if self.moments.random() < 0.3:
                self.flink.znodes.changed.clear()
                self.waits(1)

    def _lives(self, sidecar: Watcher, tick: int) -> None:
        if sidecar.now < sidecar.down_until:
            sidecar.now += tick * SECOND
            if sidecar.now >= sidecar.down_until:
                self._while_it_lives(sidecar, sidecar.restarts)
        else:
            self._while_it_lives(sidecar, lambda: sidecar.waits(tick, tick=tick))

    def _while_it_lives(self, sidecar: Watcher, what: Callable[[], object]) -> None:
        try:
            what()
        except KilledError:
            self.kills += 1
            sidecar.down_until = sidecar.now + self.moments.choice((2, 20, 100)) * SECOND

    def _fault(self) -> int:
        if self.now < self.outage_until:
            return 503
        return 599 if self.kill_chance and self.moments.random() < 0.1 else 0

    def _took(self) -> None:
        """Called in the server's thread: the attempt of the scene waits for it."""
        self.dies = self.kill_chance > self.moments.random()

    def loads(self, sidecar: Watcher, rules: tuple[Rule, ...]) -> None:
        """The sidecar loads other rules; one that is down has them when it is up again."""
        policy = replace(sidecar.policy, rules=rules)
        if sidecar.now >= sidecar.down_until:
            self._while_it_lives(sidecar, lambda: sidecar.observe(PolicyLoaded(sidecar.moment, policy)))
        sidecar.policy = policy

    def outage(self, seconds: int) -> None:
        """From now on the service answers 503."""
        self.outage_until = self.now + seconds * SECOND


class _InProcess:
    """A stand-in for the sender's child, without a process of its own."""

    def ask(self, request: Any, *_: Any) -> Answer:
        return convert(sender._answer(**request), Answer)

    def kill(self) -> None:
        """Nothing runs."""

    end = kill


@contextmanager
def played(scene: Callable[[], Scene]) -> Iterator[Scene]:
    """A scene, whose time is that of ledger and notifier."""
    playing: list[Scene] = []
    clock = SimpleNamespace(
        monotonic=lambda: (playing[0].sending or playing[0].sidecars[0]).now / SECOND if playing else 0.0,
        sleep=lambda _: None,
    )
    settle = SharedLedger.settle

    def dying(self: SharedLedger, *what: Any) -> None:
        if playing and playing[0].dies:
            playing[0].dies = False
            raise KilledError
        settle(self, *what)

    def child() -> Child | _InProcess:
        return make() if playing and playing[0].children else _InProcess()

    make = notifier._sender
    with (
        patch.object(ledger_access, "time", clock),
        patch.object(ledger_client, "time", clock),
        patch.object(notifier, "time", clock),
        patch.object(notifier, "_sender", child),
        patch.object(SharedLedger, "settle", dying),
    ):
        playing.append(scene())
        yield playing[0]


def failovers(scene: Scene) -> None:
    """Failovers that are over before they are notified, and one that is not, with faults all along; then everything works for a while."""
    moments = scene.moments
    scene.kill_chance = 0.25
    for term in range(1, 4):
        scene.flink.vacate()
        scene.sees()
        scene.waits(moments.choice((0, 1, 40)))
        scene.flink.elect(job_manager(f"jm-{term % 2}", term))
        scene.sees()
        if moments.random() < 0.3:
            scene.outage(moments.choice((60, 300)))
        scene.waits(moments.choice((4, 20, 90, 400)))
    scene.kill_chance = 0.0
    scene.outage_until = 0
    scene.waits(1500, tick=10)


def one_incident(scene: Scene) -> None:
    """A vacancy that grows, shrinks, is repeated and ends, with faults all along; then everything works for two hours."""
    moments = scene.moments
    scene.kill_chance = 0.25
    if moments.random() < 0.5:
        scene.outage(moments.choice((60, 300, 900)))
    parts: list[tuple[ComponentId, ...]] = [(DISPATCHER,), (RESOURCE_MANAGER, REST_SERVER)]
    scene.flink.vacate(*parts[0])
    scene.sees()
    scene.waits(moments.choice((40, 100)))
    scene.flink.vacate(*parts[1])
    scene.sees()
    scene.waits(moments.choice((40, 100, 700)))
    scene.flink.elect(A, *parts[moments.randrange(2)])
    scene.sees()
    scene.waits(moments.choice((5, 100, 700)))
    if moments.random() < 0.3:
        scene.outage(moments.choice((60, 300)))
    scene.flink.elect(A)
    scene.sees()
    scene.waits(moments.choice((1, 30, 100)))
    scene.kill_chance = 0.0
    scene.outage_until = 0
    scene.waits(1500, tick=10)


def reloads(scene: Scene) -> None:
    """The rule is removed while a vacancy is notified, comes back, and is removed for good; each sidecar loads that in its own time, with
    faults all along.
    """
    moments = scene.moments
    scene.kill_chance = 0.25
    scene.flink.vacate()
    scene.sees()
    scene.waits(moments.choice((35, 45, 100)))
    for rules in ((CHANGED,), scene.policy.rules, (CHANGED,)):
        if moments.random() < 0.3:
            scene.outage(moments.choice((60, 300)))
        for sidecar in moments.sample(scene.sidecars, len(scene.sidecars)):
            scene.loads(sidecar, rules)
            scene.waits(moments.choice((0, 5, 30)))
        scene.waits(moments.choice((0, 60, 700)))
    scene.kill_chance = 0.0
    scene.outage_until = 0
    scene.waits(1500, tick=10)
