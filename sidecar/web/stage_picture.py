"""The stages of one failover as a picture: a row for each stage of the cluster, and one for each of the slowest jobs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from sidecar.core.moment import SECOND, seconds
from sidecar.core.sanitize import clean
from sidecar.core.views.stages import FailoverStage, label, slowest

TICKS: Final = 5
"""Marks of the axis, at equal distances."""
_NARROWEST: Final = 0.5
"""Per cent of the width: what took no time is still seen."""
_UNLED: Final = frozenset({"dead", "seen_dead", "no_leader", "elected"})
"""Until these no leader works."""


class Bar(Struct, frozen=True):
    """A span of time, in per cent of the width. `kind` is a class of the style sheet; a `thin` one looks different without colours too."""

    kind: str
    left: float
    width: float
    thin: bool = False


class StageRow(Struct, frozen=True):
    """A stage of the cluster, or a job: what it waited for, and since its leader is back for what it waits."""

    label: str
    after: str
    """The time at which it was reached."""
    title: str
    """The row in one sentence."""
    bars: Sequence[Bar]


class StagePicture(Struct, frozen=True):
    """All of them, over the same time."""

    ticks: Sequence[str]
    rows: Sequence[StageRow]
    others: str
    """The jobs that are not drawn. Empty: none."""


def drawn(stages: Sequence[FailoverStage]) -> StagePicture | None:
    """The picture; None: there is nothing to see beside who led."""
    slow, others = slowest(stages)
    if not slow:
        return None
    whole = max(stage.seconds for stage in slow) or 1.0
    own = [stage for stage in slow if stage.job_id is None]
    led = own[-1].seconds if own else 0.0
    rows = [_cluster_row(before, stage, whole) for before, stage in pairwise([own[0], *own])] if own else []
    rows += [
        _job_row(stage, slow[place + 1 : place + 2], led, whole)
        for place, stage in enumerate(slow)
        if stage.stage == "running"
    ]
    return StagePicture([_spoken(whole * tick / (TICKS - 1)) for tick in range(TICKS)], rows, others)


def _cluster_row(before: FailoverStage, stage: FailoverStage, whole: float) -> StageRow:
    after = _spoken(stage.seconds)
    bar = _bar("vacant" if stage.stage in _UNLED else "led1", before.seconds, stage.seconds, whole)
    return StageRow(label(stage), after, f"{label(stage)} after {after}", [bar])


def _job_row(running: FailoverStage, following: Sequence[FailoverStage], led: float, whole: float) -> StageRow:
    after, name = _spoken(running.seconds), clean(running.name or running.job_id, 40)
    bars, title = [_bar("led1", led, running.seconds, whole)], f"{label(running)} after {after}"
    if following and following[0].stage == "checkpointed":
        bars.append(_bar("led2", running.seconds, following[0].seconds, whole, thin=True))
        checkpointed = _spoken(following[0].seconds)
        after, title = f"{after}, checkpoint {checkpointed}", f"{title}, first checkpoint after {checkpointed}"
    return StageRow(name, after, title, bars)


def _bar(kind: str, begin: float, end: float, whole: float, *, thin: bool = False) -> Bar:
    left = min(begin, end) / whole * 100
    width = max((end - begin) / whole * 100, _NARROWEST)
    return Bar(kind, round(min(left, 100 - _NARROWEST), 2), round(min(width, 100 - left), 2), thin)


def _spoken(value: float) -> str:
    return seconds(round(value * SECOND))
