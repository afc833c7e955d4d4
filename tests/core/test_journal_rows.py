"""The journal keeps the state, but for what a new process observes anew."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alerts
from sidecar.core.alerting.suppression import Silence, Silences
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.policy.routing import Matcher, Operator
from sidecar.core.state import State
from tests.kit.observed_failovers import PATHS, first_sight, gone, play

KEPT: dict[type[Struct], set[str]] = {
    State: {"clusters", "alerts", "outbox", "captures", "alive", "silences", "drills"},
    Alerts: {"pending", "groups", "failovers"},
    Silences: {"known"},
    ClusterState: {
        "view",
        "components",
        "episode",
        "last_episode",
        "standby",
        "pods",
        "operated",
        "disruptions",
        "ends",
        "departed",
        "recovery",
        "recovering",
        "assessed",
        "job_faults",
        "rest_server",
        "drilled",
        "account",
        "stated",
    },
}
KEPT_IN_PART = {"leases", "contested", "picture", "picture_kept", "picture_now"}
"""A picture that is not older than a minute; leases that have run out, so that a new process does not take them for alive;
which leaderships are split follows from the components."""
OBSERVED_ANEW: dict[type[Struct], set[str]] = {
    State: {"finder", "makers", "listed", "unclaimed", "stated", "status_due"},
    Alerts: {"evaluated", "beats"},
    Silences: {"asked_at", "answered_at", "problem"},
    ClusterState: {
        "jobs",
        "contenders",
        "zxid",
        "fewer",
        "confirmed",
        "stale",
        "missing",
        "refused",
        "refused_rights",
        "gone",
        "handed_over_by",
        "picture_request",
        "readiness",
        "beyond",
        "peers",
    },
}


@pytest.mark.parametrize("kind", KEPT)
def test_each_field_is_kept_or_observed_anew(kind: type[Struct]) -> None:
    """A field that is new belongs to one of the two."""
    in_part = KEPT_IN_PART if kind is ClusterState else set()
    assert KEPT[kind] | OBSERVED_ANEW[kind] | in_part == {*kind.__struct_fields__}


def test_what_is_kept_is_the_same_afterwards() -> None:
    """In the middle of a failover, with an alert, a delivery and a silence."""
    state, _ = play([*first_sight(), *(gone(10, path) for path in PATHS)])
    silence = Silence("1", (Matcher("alert", Operator.EQUAL, "x"),), 1, 3, "ann", "why", until=2, hid=4)
    state = replace(state, silences={"orders": Silences({"1": silence})})
    again, problems = assemble(changes(State(), state))
    assert problems == []
    pairs: list[tuple[type[Struct], Struct, Struct]] = [
        (State, replace(state, clusters={}, alerts=Alerts()), replace(again, clusters={}, alerts=Alerts())),
        (Alerts, state.alerts, again.alerts),
        *((ClusterState, state.clusters[name], again.clusters[name]) for name in state.clusters),
    ]
    for kind, before, after in pairs:
        assert {name: getattr(before, name) for name in KEPT[kind]} == {
            name: getattr(after, name) for name in KEPT[kind]
        }
