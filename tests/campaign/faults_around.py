"""Faults around a sidecar: its process, the store, the network between them, the receiver."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.campaign.kinds import KINDS, Kind, fail_over, kind, stop
from tests.campaign.scene import Scene
from tests.campaign.watcher import Watcher
from tests.kit.receivers import Mood
from tests.kit.relay import Wire

# -- no fault ----------------------------------------------------------------------------------------------------------


@kind()
def failover(scene: Scene) -> None:
    """Flink's leader goes, and another one comes. Nothing else."""
    fail_over(scene)


@kind()
def failovers_in_a_row(scene: Scene) -> None:
    """Three leaders within seconds."""
    for _ in range(3):
        scene.flink.fail_over(vacancy=0.1)
        scene.pause(0.2, 1.0)


@kind()
def no_leader(scene: Scene) -> None:
    """Nobody leads for long enough that it has to be reported."""
    scene.flink.fail_over(vacancy=12.0)


# -- the sidecar's process ---------------------------------------------------------------------------------------------


@kind()
def kill_one(scene: Scene) -> None:
    """kill -9 of one sidecar at any moment of a failover."""
    watcher = scene.one()
    fail_over(scene)
    scene.pause(0.0, 2.0)
    watcher.kill()
    if scene.moments.random() < 0.5:
        fail_over(scene)
    watcher.start()


@kind(blinds=True)
def kill_all(scene: Scene) -> None:
    """kill -9 of all, and a failover that nobody sees."""
    fail_over(scene)
    scene.pause(0.0, 1.0)
    for watcher in scene.watchers:
        watcher.kill()
    fail_over(scene)
    for watcher in scene.watchers:
        watcher.start()


@kind()
def freeze(scene: Scene) -> None:
    """SIGSTOP of one through a failover, then SIGCONT."""
    watcher = scene.one()
    assert watcher.process
    watcher.process.send_signal(signal.SIGSTOP)
    try:
        fail_over(scene)
        scene.pause(1.0, 25.0)  # a claim holds for 10 s
    finally:
        watcher.process.send_signal(signal.SIGCONT)


@kind()
def terminate(scene: Scene) -> None:
    """SIGTERM within a failover, and a new start."""
    watcher = scene.one()
    fail_over(scene)
    scene.pause(0.0, 1.0)
    stop(watcher, scene)
    watcher.start()


@kind()
def reload(scene: Scene) -> None:
    """SIGHUP with a broken configuration, then with the right one."""
    watcher = scene.one()
    assert watcher.process
    right = watcher.config.read_text()
    try:
        for text in (right + "receivers: [{name: [\n", right):
            watcher.config.write_text(text)
            watcher.process.send_signal(signal.SIGHUP)
            fail_over(scene)
    finally:
        watcher.config.write_text(right)


# -- the store ---------------------------------------------------------------------------------------------------------


@kind(blinds=True)
def store_restarted(scene: Scene) -> None:
    """The server is killed and started at once."""
    scene.server.kill()
    scene.server.start()
    scene.flink.confirm()
    fail_over(scene)


@kind(blinds=True)
def store_down(scene: Scene) -> None:
    """The server is away for longer than `trust_window`, or than anybody waits for the ledger."""
    scene.server.kill()
    scene.pause(5.0, 25.0)
    scene.server.start()
    scene.flink.confirm()
    fail_over(scene)


@kind(blinds=True)
def store_frozen(scene: Scene) -> None:
    """The server is stopped: connections stay, and no answer comes."""
    scene.server.pause()
    try:
        scene.pause(2.0, 12.0)
    finally:
        scene.server.resume()
    scene.flink.confirm()
    fail_over(scene)


@kind(blinds=True)
def store_set_back(scene: Scene) -> None:
    """The store is restored from a copy that does not know the last failovers: its numbers come again."""
    scene.set_back(lambda: fail_over(scene))
    fail_over(scene)


# -- the network between them ------------------------------------------------------------------------------------------


@contextmanager
def _line(watchers: list[Watcher], worsen: Callable[[Wire], None]) -> Iterator[None]:
    for watcher in watchers:
        worsen(watcher.relay)
    try:
        yield
    finally:
        for watcher in watchers:
            watcher.relay.mend()


@kind(blinds=True)
def cut(scene: Scene) -> None:
    """No sidecar has a connection, and Flink fails over."""
    with _line(scene.watchers, Wire.shut):
        fail_over(scene)
        scene.pause(0.5, 10.0)


@kind()
def cut_one(scene: Scene) -> None:
    """One sidecar has no connection."""
    with _line([scene.one()], Wire.shut):
        fail_over(scene)
        scene.pause(0.5, 10.0)


@kind(blinds=True)
def half_open(scene: Scene) -> None:
    """Connections stay and nothing comes through."""
    with _line(scene.watchers, Wire.fall_silent):
        fail_over(scene)
        scene.pause(1.0, 15.0)


@kind(blinds=True)
def trickle(scene: Scene) -> None:
    """One byte every 10 ms: everything is late, and nothing is lost."""
    with _line(scene.watchers, lambda wire: wire.trickle(0.01)):
        scene.flink.fail_over(vacancy=0.3)
        scene.pause(5.0, 20.0)


@kind(blinds=True)
def slow(scene: Scene) -> None:
    """Every answer is a second late."""
    with _line(scene.watchers, lambda wire: wire.delay(1.0)):
        fail_over(scene)
        scene.pause(2.0, 8.0)


# -- the receiver ------------------------------------------------------------------------------------------------------


@contextmanager
def _mood(scene: Scene, mood: Mood) -> Iterator[None]:
    scene.receiver.moods = {mood: 1}
    try:
        yield
    finally:
        scene.receiver.moods = {Mood.WELL: 1}


def _moody(mood: Mood, what: str) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        with _mood(scene, mood):
            fail_over(scene)
            scene.pause(1.0, 6.0)

    act.__doc__ = what
    return act


for _name, _of in {
    "receiver-500": Mood.BROKEN,
    "receiver-500-kept": Mood.BROKEN_BUT_KEPT,
    "receiver-429": Mood.TOO_MANY,
    "receiver-hangs": Mood.HANGS,
    "receiver-resets": Mood.RESETS,
}.items():
    KINDS[_name] = Kind(_moody(_of, f"A receiver answers: {_of}."))


@kind()
def everything_at_once(scene: Scene) -> None:
    """Sidecars die within failovers, one after the other, while the receiver has moods; the ledger is deleted, later garbled."""
    scene.receiver.moods = {Mood.WELL: 5, **dict.fromkeys((mood for mood in Mood if mood is not Mood.WELL), 1)}
    try:
        for number in range(10):
            watcher = scene.one()
            fail_over(scene)
            scene.pause(0.0, 2.0)
            watcher.kill()
            if number in {3, 7}:
                scene.write_document("ledger", None if number == 3 else b"garbled")
            scene.pause(0.0, 10.0)
            watcher.start().wait_ready()  # else the leader that it missed may be gone before it looks
    finally:
        scene.receiver.moods = {Mood.WELL: 1}
