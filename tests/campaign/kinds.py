"""The kinds of faults, by name: each is registered by the function that does it, `kill_one` as `kill-one`."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.campaign.scene import Scene
from tests.campaign.watcher import Watcher


class Kind(NamedTuple):
    """A fault: what it does, and what it may take away."""

    act: Callable[[Scene], None]
    blinds: bool = False
    """Nobody can see the store meanwhile: leaders that come and go in between need not be reported."""
    loses_journal: bool = False
    """A sidecar loses what it had not sealed, and who led before."""
    needs_small_disk: bool = False
    stores: tuple[str, ...] = ("zookeeper", "kubernetes")


KINDS: Final[dict[str, Kind]] = {}


def kind(
    *,
    blinds: bool = False,
    loses_journal: bool = False,
    needs_small_disk: bool = False,
    stores: tuple[str, ...] = ("zookeeper", "kubernetes"),
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register the function as a kind: see `Kind`."""

    def register(act: Callable[[Scene], None]) -> Callable[[Scene], None]:
        KINDS[act.__name__.replace("_", "-")] = Kind(act, blinds, loses_journal, needs_small_disk, stores)
        return act

    return register


def fail_over(scene: Scene) -> None:
    """A failover of a random kind. Vacancies are short, so that none is worth an alert."""
    scene.flink.fail_over(vacancy=scene.moments.choice((0.05, 0.3, 1.0)), crash=scene.moments.random() < 0.3)


def stop(watcher: Watcher, scene: Scene) -> None:
    """SIGTERM, and what it ended with into the diary."""
    scene.diary.note("ended", sidecar=watcher.name, status=watcher.stop())
