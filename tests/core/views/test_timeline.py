"""The recorded past as spans of time."""

from itertools import pairwise

import pytest

from sidecar.core.moment import SECOND
from sidecar.core.views.timeline import (
    LeaderSpan,
    SpanState,
    Switch,
    blind_now,
    blindness,
    change,
    current,
    spans,
    totals,
)
from tests.kit.cluster import CLUSTER, DISPATCHER, START
from tests.kit.core_sidecar import Sidecar, fail_over, watching

HELD, VACANT, BLIND, UNRECORDED = SpanState


def seconds(timeline: list[LeaderSpan]) -> list[tuple[float, float, str, str | None]]:
    return [((s.start - START) / SECOND, (s.end - START) / SECOND, s.state.value, s.leader) for s in timeline]


def of_dispatcher(sidecar: Sidecar, start: int = 0, recorded: int = 0) -> list[LeaderSpan]:
    """The dispatcher's spans, from `start` seconds after the scene began; records exist since `recorded`."""
    cluster = sidecar.state.clusters[CLUSTER]
    blind = [span for record in sidecar.coverage() if (span := blindness(record))]
    now = blind_now(cluster, sidecar.moment)
    return spans(
        [change(record) for record in sidecar.transitions(DISPATCHER)],
        [*blind, *([now] if now else [])],
        current(cluster.components[DISPATCHER].leadership),
        START + start * SECOND,
        sidecar.now,
        START + recorded * SECOND,
    )


def test_a_failover_and_a_time_without_a_view() -> None:
    """Led, vacant, led by another, not seen, led again; without gaps."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(10)
    sidecar.is_cut_off().waits(20).connects().waits(30)
    timeline = of_dispatcher(sidecar)
    assert [(span.state, span.leader) for span in timeline] == [
        *((HELD, "jm-a"), (VACANT, None), (HELD, "jm-b"), (BLIND, None)),
        (HELD, "jm-b"),
    ]
    assert [round((span.end - span.start) / SECOND) for span in timeline] == [60, 2, 10, 20, 30]
    assert all(before.end == after.start for before, after in pairwise(timeline))
    assert totals(timeline)[HELD][0] == 3


def test_blindness_that_goes_on_is_no_leader_and_no_vacancy() -> None:
    """Until now."""
    _, sidecar = watching()
    sidecar.is_cut_off().waits(20)
    assert seconds(of_dispatcher(sidecar))[-1][2:] == ("blind", None)


def test_what_was_before_the_first_record_is_not_known() -> None:
    """It is no vacancy."""
    _, sidecar = watching()
    assert seconds(of_dispatcher(sidecar, start=-60, recorded=10)) == [
        (-60, 10, "unrecorded", None),
        (10, (sidecar.now - START) / SECOND, "held", "jm-a"),
    ]


@pytest.mark.parametrize("number", [0, 1, 10_000])
def test_spans_cover_the_window(number: int) -> None:
    """However many changes there were, in and before it."""
    leaders = [(HELD, "a"), (VACANT, None)]
    changes = [Switch(n * 2, leaders[n % 2], leaders[1 - n % 2]) for n in range(number)]
    blind = [(n * 2 + 1, n * 2 + 2) for n in range(0, number, 3)]
    timeline = spans(changes, blind, leaders[0], 5, 100_000, 0)
    assert (timeline[0].start, timeline[-1].end) == (5, 100_000)
    assert all(before.end == after.start for before, after in pairwise(timeline))
    assert sum(total for _, total in totals(timeline).values()) == 99_995
