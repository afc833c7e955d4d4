"""The report's picture of who led: its colours distinguish leaders. Without Spark: the data is given."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from sidecar.audit import report_charts
from sidecar.audit.report_data import Findings, Interval, Lane
from tests.audit.spooling import NOON, session_id


def address(host: str, port: int = 6123) -> str:
    """Of a JobManager."""
    return f"pekko.tcp://flink@{host}:{port}/user/rpc/dispatcher_0"


def lane(component: str, *terms: tuple[str, str] | None, cluster_id: str = "default") -> Lane:
    """A leadership with terms of a minute each, by session id and address; None: vacant."""
    intervals = []
    for number, term in enumerate(terms):
        began = NOON + timedelta(minutes=number)
        session, leader = term or (None, None)
        intervals.append(Interval(began, began + timedelta(minutes=1), leader, session))
    return Lane(cluster_id, component, None, intervals, [], [])


def colours(*lanes: Lane) -> list[list[str]]:
    """In which colour each stretch of each lane is drawn."""
    nothing: dict[str, Any] = dict.fromkeys(Findings.__struct_fields__, ())
    found = Findings(**nothing | {"begin": NOON, "end": NOON + timedelta(hours=1), "lanes": lanes})
    drawn: dict[tuple[int, str], str] = {}
    for trace in report_charts.leadership(found).data:
        if trace.type == "bar":
            drawn |= dict.fromkeys(zip(trace.y, trace.base, strict=True), trace.marker.color)
    return [[drawn[nth, began] for began in sorted(b for n, b in drawn if n == nth)] for nth in range(len(lanes))]


def different(colours: Sequence[str]) -> bool:
    """Whether no two are the same."""
    return len(set(colours)) == len(colours)


A, B, C, D = map(session_id, "abcd")
HOST, OTHER = address("127.0.0.1", 24101), address("127.0.0.1", 24102)


def test_another_leader_has_another_colour() -> None:
    """Also on the same host: another process there, the same pod restarted, and a process that was elected anew."""
    (drawn,) = colours(lane("dispatcher", (A, HOST), (B, OTHER), (C, OTHER), None, (D, OTHER)))
    assert different(drawn)
    assert drawn[3] == report_charts.VACANT


def test_a_leader_has_one_colour_in_all_lanes() -> None:
    """Whether its components share a session id, as since Flink 1.15, or each has its own."""
    shared = colours(
        lane("dispatcher", (A, HOST), (B, HOST)), lane("rest_server", (A, address("127.0.0.1", 8081)), (B, HOST))
    )
    assert shared[0] == shared[1]
    own = colours(lane("dispatcher", (A, HOST), (B, HOST)), lane("resource_manager", (C, HOST), (D, HOST)))
    assert own[0] == own[1]
    assert different(own[0])


def test_who_is_back_has_the_colour_of_before() -> None:
    """With its old session id it is the same leader."""
    (drawn,) = colours(lane("dispatcher", (A, HOST), (B, OTHER), (A, HOST)))
    assert drawn[0] == drawn[2] != drawn[1]


def test_no_two_terms_that_follow_each_other_look_alike() -> None:
    """However many there are, and whatever other lanes show."""
    many = [(session_id(f"{n:x}")[:-2] + f"{n:02}", address(f"jm-{n % 3}")) for n in range(40)]
    drawn = colours(lane("dispatcher", *many), lane("job", *many[::7]), lane("dispatcher", *many, cluster_id="other"))
    for one in drawn:
        assert all(before != after for before, after in pairwise(one))
