"""A sidecar whose folder is empty goes on where the one before it ended."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import TypeVar

import pytest
from msgspec import json
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.cluster.state import ClusterState
from sidecar.core.effects import Append, Effect, Send
from sidecar.core.flink.leadership import Component, ComponentId, Held
from sidecar.core.handover import CLOCK_SKEW, KEPT, MOST_BYTES, HandoverError
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ConnectionState,
    HandoverRead,
    Observation,
    PlaceRemoved,
    SnapshotCompleted,
    Started,
    Stopped,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy.policy import Policy
from sidecar.core.records import EpisodeRecord, TransitionRecord
from sidecar.core.state import State
from tests.kit.observed_failovers import CLUSTER, PATHS, POLICY, at, first_sight, gone, held, play

R = TypeVar("R")
NEXT = replace(POLICY, observer="observer-2")


def left_by(observations: Sequence[Observation], second: float, *, ended: bool = False) -> bytes:
    """What a sidecar that observed this leaves."""
    state, _ = play([*observations])
    return handover.written(CLUSTER, handover.of(POLICY, state, CLUSTER, at(second), ended=ended))


def begin(second: float, content: bytes, policy: Policy = NEXT) -> State:
    """A sidecar with an empty folder, which has read the handover."""
    return play([Started(at(second)), HandoverRead(at(second), CLUSTER, content)], policy=policy)[0]


def look(second: float, *found: Observation) -> list[Observation]:
    """The first look at the store, and a moment afterwards."""
    return [
        ViewObserved(at(second), CLUSTER, ConnectionState.CONNECTED),
        *found,
        SnapshotCompleted(at(second), CLUSTER),
        *(Ticked(at(second + after)) for after in (0.5, 5.5, 6, 12)),
    ]


def records(kind: type[R], effects: list[Effect]) -> list[R]:
    return [effect.record for effect in effects if isinstance(effect, Append) and isinstance(effect.record, kind)]


def sent(effects: list[Effect]) -> list[str]:
    """The titles of what goes to the first destination."""
    return [e.delivery.title for e in effects if isinstance(e, Send) and e.delivery.destination == "ops#0"]


def document(content: bytes) -> dict[str, object]:
    return json.decode(zlib.decompress(b64decode(content), wbits=31), type=dict[str, object])


def forged(content: bytes, **fields: object) -> bytes:
    """The document with other fields."""
    packer = zlib.compressobj(wbits=31)
    return b64encode(packer.compress(json.encode({**document(content), **fields})) + packer.flush())


def test_the_only_jobmanager_is_deleted_with_its_sidecar() -> None:
    """The old sidecar saw the leaders go and ended; the new one sees another leader: one failover, one message, bounds of the vacancy."""
    ending = [*first_sight(), *(gone(100, path) for path in PATHS), Stopped(at(101))]
    state = begin(110, left_by(ending, 101, ended=True))
    _, effects = play(look(112, *(held(112, path, 2) for path in PATHS)), state, NEXT)
    [episode] = records(EpisodeRecord, effects)
    opened = play(ending)[0].clusters[CLUSTER].episode
    assert opened
    assert episode.id == opened.id
    assert (episode.observer, episode.before_address) == ("observer-2", "pekko.tcp://flink@jm-1:6123/user/rpc/x_1")
    assert episode.facts[-1] == "What was before is known from the handover of sidecar observer-1."
    assert episode.downtime_seconds_at_least == 1.0, "observed until the first sidecar ended"
    assert sent(effects) == ["[WARNING] default: JobManager failed over: jm-1 → jm-2"]


def test_a_vacancy_that_two_sidecars_observed_lasted_as_long_as_both_saw_it() -> None:
    """Not the time between them, in which another leader may have come and gone."""
    ending = [*first_sight(), *(gone(100, path) for path in PATHS), Stopped(at(101))]
    state = begin(110, left_by(ending, 101, ended=True))
    state, _ = play(look(112), state, NEXT)
    _, effects = play([*(held(130, path, 2) for path in PATHS), *(Ticked(at(s)) for s in (130.5, 136))], state, NEXT)
    [episode] = records(EpisodeRecord, effects)
    assert episode.downtime_seconds_at_least == (101 - 100) + (130 - 112)
    assert {each.downtime_seconds_at_least for each in records(TransitionRecord, effects)} == {130 - 112}


def test_how_a_failover_began_is_learned_from_a_sidecar_that_is_still_running() -> None:
    """In a rolling update the next sidecar starts before the first one has seen its JobManager go: only the first one knows how."""
    first, _ = play(first_sight())
    second = begin(99, handover.written(CLUSTER, handover.of(POLICY, first, CLUSTER, at(99))))
    withdrawal: list[Observation] = [
        *(gone(100, path) for path in PATHS),
        *(PlaceRemoved(at(100.1), CLUSTER, path) for path in PATHS),
    ]
    first, _ = play(withdrawal, first)
    later = handover.written(CLUSTER, handover.of(POLICY, first, CLUSTER, at(102)))
    second, _ = play(look(101, *(gone(101, path) for path in PATHS))[:-2], second, NEXT)
    new: list[Observation] = [
        HandoverRead(at(103), CLUSTER, later),
        *(held(104, path, 2) for path in PATHS),
        *(Ticked(at(s)) for s in (105, 110)),
    ]
    _, informed = play(new, second, NEXT)
    _, uninformed = play(new[1:], second, NEXT)
    assert [each.cause for each in records(EpisodeRecord, informed)] == ["graceful_handover"]
    assert [each.cause for each in records(EpisodeRecord, uninformed)] == ["unknown"]


def test_a_leader_that_changed_while_no_sidecar_ran_is_discovered() -> None:
    """With what was last known, as a failover that was not observed."""
    state = begin(400, left_by(first_sight(), 300))
    _, effects = play(look(401, *(held(350, path, 2) for path in PATHS)), state, NEXT)
    transitions = records(TransitionRecord, effects)
    assert {(each.kind, each.last_known_address) for each in transitions} == {
        ("DISCOVERED", "pekko.tcp://flink@jm-1:6123/user/rpc/x_1")
    }
    [episode] = records(EpisodeRecord, effects)
    assert "What was before is known from the handover of sidecar observer-1." in episode.facts
    assert len(sent(effects)) == 1


def test_the_same_leader_is_no_failover() -> None:
    """Nothing happened while no sidecar ran: nobody is notified."""
    state = begin(400, left_by(first_sight(), 300))
    _, effects = play(look(401, *(held(0, path, 1) for path in PATHS)), state, NEXT)
    assert records(EpisodeRecord, effects) == []
    assert sent(effects) == []


def test_a_condition_that_was_notified_is_resolved_by_the_next_sidecar() -> None:
    """Once; and not notified a second time before."""
    vacant = [*first_sight(), *(gone(100, path) for path in PATHS), *(Ticked(at(100 + s)) for s in (31, 37))]
    before, effects = play(vacant)
    assert len(sent(effects)) == 1
    delivered = replace(before, outbox={})
    content = handover.written(CLUSTER, handover.of(POLICY, delivered, CLUSTER, at(140)))
    state = begin(150, content)
    state, effects = play(look(151, *(gone(151, path) for path in PATHS)), state, NEXT)
    assert sent(effects) == []
    later: list[Observation] = [*(held(200, path, 2) for path in PATHS), *(Ticked(at(200 + s)) for s in (1, 61, 120))]
    _, effects = play(later, state, NEXT)
    assert [title.partition(" ")[0] for title in sent(effects)] == ["[RESOLVED]"]


def test_what_was_not_delivered_is_sent_by_the_next_sidecar() -> None:
    """Composed anew, once for each destination: the ledger knows which one has it."""
    changed = [*first_sight(), *(held(100, path, 2) for path in PATHS), *(Ticked(at(100 + s)) for s in (1, 7))]
    before, effects = play(changed)
    assert sent(effects) == ["[WARNING] default: JobManager failed over: jm-1 → jm-2"]
    content = handover.written(CLUSTER, handover.of(POLICY, before, CLUSTER, at(110)))
    _, effects = play(look(151, *(held(100, path, 2) for path in PATHS)), begin(150, content), NEXT)
    assert sent(effects) == ["[WARNING] default: JobManager failed over: jm-1 → jm-2"]


def test_a_sidecar_that_knows_the_cluster_takes_nothing_over() -> None:
    """Its own journal says more."""
    content = left_by([*first_sight(), *(gone(100, path) for path in PATHS)], 101)
    state, _ = play(first_sight(), policy=NEXT)
    assert play([HandoverRead(at(102), CLUSTER, content)], state, NEXT)[0] is state


def test_a_cluster_that_is_not_watched_is_not_taken_over() -> None:
    """Its policy decides."""
    state = State()
    assert play([HandoverRead(at(2), "other", left_by(first_sight(), 1))], state, NEXT)[0] is state


def test_alerts_about_another_sidecar_are_not_taken_over() -> None:
    """That it could not read the store is over with it."""
    content = left_by(first_sight(), 300)
    found = handover.read(content, CLUSTER, at(301))
    assert found
    assert found.alerts.groups == {}


@pytest.mark.parametrize("jobs", [0, 1, 100, 3_000, 10_000])
def test_it_is_bounded_whatever_the_number_of_jobs(jobs: int) -> None:
    """Those that do not fit are counted; the cluster's own leaders are always in it."""
    state, _ = play(first_sight())
    cluster = state.clusters[CLUSTER]
    one = cluster.components[ComponentId(Component.DISPATCHER)]
    assert isinstance(one.leadership, Held)
    many = {
        ComponentId(Component.JOB, f"{number * 7919 * 10**30 % 16**32:032x}"): replace(
            one, last_position=replace(one.leadership.position, path=f"/leader/{number}", czxid=number)
        )
        for number in range(jobs)
    }
    state = replace(state, clusters={CLUSTER: replace(cluster, components={**cluster.components, **many})})
    content = handover.written(CLUSTER, handover.of(POLICY, state, CLUSTER, at(1)))
    assert len(content) <= MOST_BYTES
    found = handover.read(content, CLUSTER, at(2))
    assert found
    assert found.leaders + found.jobs_left_out == 3 + jobs
    assert found.leaders >= 3 + min(jobs, 1000)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{}", "it is no handover of a sidecar: delete it"),
        (b"\xff", "it is no handover of a sidecar: delete it"),
        (b64encode(b"nothing"), "it is no handover of a sidecar: delete it"),
        (b64encode(zlib.compress(b" " * (9 << 20), wbits=31)), "it is cut off, or holds more than 8 MiB"),
        (b64encode(zlib.compress(b"[" * 100_000, wbits=31)), "it is no handover of a sidecar: delete it"),
    ],
)
def test_hostile_bytes_are_refused(content: bytes, problem: str) -> None:
    """In one line, without what is in them."""
    with pytest.raises(HandoverError, match=problem):
        handover.read(content, CLUSTER, at(0))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"format": 99}, "it was written by a newer version"),
        ({"rows": [["component", "x", {}]]}, "a row of kind component cannot be decoded"),
        ({"alive": {"steady": 10**17, "wall": 10**17}}, "it says that it was written in the future"),
        ({"alive": {"steady": 1, "wall": 1}}, "it is older than 7 days"),
        ({"alive": {"steady": 0, "wall": at(0).wall}}, "it has times that are later than itself"),
    ],
)
def test_a_document_that_claims_what_cannot_be_is_refused(fields: dict[str, object], problem: str) -> None:
    """The sidecar begins without it."""
    content = left_by([*first_sight(5), *(gone(10, path) for path in PATHS)], 11)
    with pytest.raises(HandoverError, match=problem):
        handover.read(forged(content, **fields), CLUSTER, at(12))


def test_rows_that_are_not_handed_over_are_ignored() -> None:
    """A delivery holds text that somebody else wrote; coverage is what each observer saw itself."""
    content = left_by(first_sight(), 11)
    rows = document(content)["rows"]
    assert isinstance(rows, list)
    kinds = {row[0] for row in rows}
    assert kinds <= {"component", "standby"}
    found = handover.read(forged(content, rows=[*rows, ["delivery", "x", {}], ["view", CLUSTER, {}]]), CLUSTER, at(12))
    assert found
    assert found.cluster.view.since == Moment(0, 0)


def test_an_empty_document_is_none() -> None:
    """As in a ConfigMap that only has a ledger."""
    assert handover.read(b"", CLUSTER, at(0)) is None


def test_clocks_that_differ_a_little_are_accepted() -> None:
    """The node before was ahead."""
    assert handover.read(left_by(first_sight(), 11), CLUSTER, Moment(at(11).steady, at(11).wall - CLOCK_SKEW))


def test_an_old_one_is_not_taken_over() -> None:
    """A week is the longest."""
    with pytest.raises(HandoverError):
        handover.read(left_by(first_sight(), 11), CLUSTER, Moment(0, at(12).wall + KEPT + SECOND))


def test_each_field_of_a_cluster_is_handed_over_or_observed_anew() -> None:
    """A field that is new belongs to one of the two."""
    handed_over = {
        "components",
        "leases",
        "episode",
        "last_episode",
        "standby",
        "contested",
        "pods",
        "operated",
        "disruptions",
    }
    anew = {
        "view",
        "jobs",
        "contenders",
        "zxid",
        "fewer",
        "confirmed",
        "stale",
        "missing",
        "refused",
        "gone",
        "departed",
        "handed_over_by",
    }
    assert handed_over | anew == {*ClusterState.__struct_fields__}
