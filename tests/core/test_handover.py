"""A sidecar whose folder is empty goes on where the one before it ended."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import TypeVar
from uuid import UUID

import pytest
from msgspec import inspect, json
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.alerting.alerting_step import Send
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.flink.deployments import Candidate, FlinkDeployment, Maker, Seen
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId, Held
from sidecar.core.handover import HandoverError, schema
from sidecar.core.handover import document as handover_document
from sidecar.core.handover.reader import CLOCK_SKEW, KEPT
from sidecar.core.handover.writer import MOST_BYTES
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ConnectionState,
    HandoverRead,
    MakerObserved,
    MakersListed,
    Observation,
    PlaceRemoved,
    SnapshotCompleted,
    Started,
    Stopped,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.policy.triggers import Trigger
from sidecar.core.quarantine import Quarantined
from sidecar.core.records import EpisodeRecord, TransitionRecord
from sidecar.core.state import Append, Effect, State
from tests.core.triggers import LASTING, SCENES, reasons, watching
from tests.kit.observed_failovers import CLUSTER, PATHS, POLICY, at, first_sight, gone, held, play

R = TypeVar("R")
NEXT = replace(POLICY, observer="observer-2")


def left_by(observations: Sequence[Observation], second: float, *, ended: bool = False) -> bytes:
    """What a sidecar that observed this leaves."""
    state, _ = play([*observations])
    return handover.written(CLUSTER, handover.cluster_handover(POLICY, state, CLUSTER, at(second), ended=ended))


def begin(second: float, content: bytes, policy: Policy = NEXT) -> State:
    """A sidecar with an empty folder, which has read the handover."""
    return play([Started(at(second)), HandoverRead(at(second), CLUSTER, content)], policy=policy)[0]


def look(second: float, *observations: Observation) -> list[Observation]:
    """The first look at the store, and a moment afterwards."""
    return [
        ViewObserved(at(second), CLUSTER, ConnectionState.CONNECTED),
        *observations,
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


def packed(fields: dict[str, object]) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b64encode(packer.compress(json.encode(fields)) + packer.flush())


def forged(content: bytes, **fields: object) -> bytes:
    """The document with other fields."""
    return packed({**document(content), **fields})


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
    assert sent(effects) == ["[UNCHECKED] default: jm-2 leads; whether jobs run is not known (no REST)"]


def test_a_vacancy_that_two_sidecars_observed_lasted_as_long_as_both_saw_it() -> None:
    """Not the time between them, in which another leader may have come and gone."""
    ending = [*first_sight(), *(gone(100, path) for path in PATHS), Stopped(at(101))]
    state = begin(110, left_by(ending, 101, ended=True))
    state, _ = play(look(112), state, NEXT)
    _, effects = play([*(held(130, path, 2) for path in PATHS), *(Ticked(at(s)) for s in (130.5, 136))], state, NEXT)
    [episode] = records(EpisodeRecord, effects)
    assert episode.downtime_seconds_at_least == (101 - 100) + (130 - 112)
    assert {record.downtime_seconds_at_least for record in records(TransitionRecord, effects)} == {130 - 112}


def test_how_a_failover_began_is_learned_from_a_sidecar_that_is_still_running() -> None:
    """In a rolling update the next sidecar starts before the first one has seen its JobManager go: only the first one knows how."""
    first, _ = play(first_sight())
    second = begin(99, handover.written(CLUSTER, handover.cluster_handover(POLICY, first, CLUSTER, at(99))))
    withdrawal: list[Observation] = [
        *(gone(100, path) for path in PATHS),
        *(PlaceRemoved(at(100.1), CLUSTER, path) for path in PATHS),
    ]
    first, _ = play(withdrawal, first)
    later = handover.written(CLUSTER, handover.cluster_handover(POLICY, first, CLUSTER, at(102)))
    second, _ = play(look(101, *(gone(101, path) for path in PATHS))[:-2], second, NEXT)
    new: list[Observation] = [
        HandoverRead(at(103), CLUSTER, later),
        *(held(104, path, 2) for path in PATHS),
        *(Ticked(at(s)) for s in (105, 110)),
    ]
    _, informed = play(new, second, NEXT)
    _, uninformed = play(new[1:], second, NEXT)
    assert [record.cause for record in records(EpisodeRecord, informed)] == ["graceful_handover"]
    assert [record.cause for record in records(EpisodeRecord, uninformed)] == ["unknown"]


def test_a_leader_that_changed_while_no_sidecar_ran_is_discovered() -> None:
    """With what was last known, as a failover that was not observed."""
    state = begin(400, left_by(first_sight(), 300))
    _, effects = play(look(401, *(held(350, path, 2) for path in PATHS)), state, NEXT)
    transitions = records(TransitionRecord, effects)
    assert {(transition.kind, transition.last_known_address) for transition in transitions} == {
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
    content = handover.written(CLUSTER, handover.cluster_handover(POLICY, delivered, CLUSTER, at(140)))
    state = begin(150, content)
    state, effects = play(look(151, *(gone(151, path) for path in PATHS)), state, NEXT)
    assert sent(effects) == []
    later: list[Observation] = [*(held(200, path, 2) for path in PATHS), *(Ticked(at(200 + s)) for s in (1, 61, 120))]
    _, effects = play(later, state, NEXT)
    assert [title.partition(" ")[0] for title in sent(effects)] == ["[UNCHECKED]"]


@pytest.mark.parametrize("trigger", [trigger for trigger in LASTING if trigger is not Trigger.BLIND])
def test_no_open_alert_ends_or_is_notified_again_with_the_sidecar(trigger: Trigger) -> None:
    """Without the jobs that are missing or waited for, the split, the standby, the silent leader, the last drill, the counted failovers or
    the stop, its condition would be over for the next sidecar: it would be resolved, and most would fire again.
    """
    scene = SCENES[trigger]
    flink, sidecar = watching(scene.rule)
    scene.begins(flink, sidecar)
    sidecar.waits(2)
    assert reasons(sidecar) == ["FIRST"]
    sidecar.is_replaced(down_for=3).connects().waits(20)
    assert reasons(sidecar) == ["FIRST"]
    assert scene.ends
    scene.ends(flink, sidecar)
    sidecar.waits(70)
    assert reasons(sidecar) == ["FIRST", "RESOLVED"]


def test_what_was_not_delivered_is_sent_by_the_next_sidecar() -> None:
    """Composed anew, once for each destination: the ledger knows which one has it."""
    changed = [*first_sight(), *(held(100, path, 2) for path in PATHS), *(Ticked(at(100 + s)) for s in (1, 7))]
    before, effects = play(changed)
    assert sent(effects) == ["[UNCHECKED] default: jm-2 leads; whether jobs run is not known (no REST)"]
    content = handover.written(CLUSTER, handover.cluster_handover(POLICY, before, CLUSTER, at(110)))
    _, effects = play(look(151, *(held(100, path, 2) for path in PATHS)), begin(150, content), NEXT)
    assert sent(effects) == ["[UNCHECKED] default: jm-2 leads; whether jobs run is not known (no REST)"]


def test_a_sidecar_that_knows_the_cluster_takes_nothing_over() -> None:
    """Its own journal says more."""
    content = left_by([*first_sight(), *(gone(100, path) for path in PATHS)], 101)
    state, _ = play(first_sight(), policy=NEXT)
    assert play([HandoverRead(at(102), CLUSTER, content)], state, NEXT)[0] is state


def test_a_cluster_that_is_not_watched_is_not_taken_over() -> None:
    """Its policy decides."""
    state = State()
    assert play([HandoverRead(at(2), "other", left_by(first_sight(), 1))], state, NEXT)[0] is state


def test_a_component_of_the_cluster_cannot_have_ended_as_a_job_does() -> None:
    """Whoever says so changes nothing: it is vacant when its leader goes, and stays watched."""
    content = left_by(first_sight(), 11)
    components = document(content)["components"]
    assert isinstance(components, list)
    for _, component in components:
        component["registered"] = False
    state = begin(20, forged(content, components=components))
    leave = [gone(30, path) for path in PATHS]
    state, _ = play([*look(22, *(held(22, path, 1) for path in PATHS)), *leave], state, NEXT)
    assert {*CLUSTER_COMPONENTS} <= {*state.clusters[CLUSTER].components}


def test_alerts_about_another_sidecar_are_not_taken_over() -> None:
    """That it could not read the store is over with it."""
    content = left_by(first_sight(), 300)
    contents = handover.read(content, CLUSTER, at(301))
    assert contents
    assert contents.alerts.groups == {}


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
    content = handover.written(CLUSTER, handover.cluster_handover(POLICY, state, CLUSTER, at(1)))
    assert len(content) <= MOST_BYTES
    contents = handover.read(content, CLUSTER, at(2))
    assert contents
    assert contents.leaders + contents.jobs_left_out == 3 + jobs
    assert contents.leaders >= 3 + min(jobs, 1000)


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
        ({"format": 0}, "it is no handover of a sidecar: delete it"),
        (
            {"components": [[{"component": "x"}, {}]]},
            r"it is no handover of a sidecar: delete it \(see `\$\.components",
        ),
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


# -- what others may write ---------------------------------------------------------------------------------------------


def types_in(root: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """Each type in a type, with the field that it is of."""
    waiting, structs = [("", root)], set[type]()
    while waiting:
        name, one = waiting.pop()
        yield name, one
        match one:
            case inspect.StructType(cls=cls, fields=fields) if cls not in structs:
                structs.add(cls)
                waiting += ((f"{cls.__name__}.{field.name}", field.type) for field in fields)
            case inspect.UnionType(types=types):
                waiting += ((name, inner) for inner in types)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                waiting.append((name, item))
            case inspect.TupleType(item_types=items):
                waiting += ((name, inner) for inner in items)
            case inspect.DictType(key_type=key, value_type=value):
                waiting += ((name, key), (name, value))


def is_bounded(one: inspect.Type) -> bool:
    match one:
        case inspect.StrType():
            return one.max_length is not None or one.pattern is not None
        case inspect.IntType() | inspect.FloatType():
            return one.ge is not None and one.le is not None
        case inspect.ListType() | inspect.VarTupleType() | inspect.DictType():
            return one.max_length is not None
    return not isinstance(one, inspect.AnyType | inspect.BytesType | inspect.RawType)


def test_each_value_of_the_document_is_bounded() -> None:
    """Each text, number and list of its schema; only the number of the format is looked at by itself."""
    assert {name for name, one in types_in(inspect.type_info(schema.Document)) if not is_bounded(one)} == {
        "Document.format"
    }


def poisoned(**fields: object) -> bytes:
    """A handover with a notified alert that has these fields."""
    content = left_by(
        [*first_sight(), *(gone(100, path) for path in PATHS), *(Ticked(at(100 + s)) for s in (31, 37))], 140
    )
    groups = document(content)["groups"]
    assert isinstance(groups, dict)
    for group in groups.values():
        for member in group["members"].values():
            member["alert"].update(fields)
    return forged(content, groups=groups)


FAR = {"steady": 1, "wall": 10**18}


@pytest.mark.parametrize(
    "fields",
    [
        {"began": FAR},
        {"ended": FAR},
        {"began": {"steady": -(10**30), "wall": 0}},
        {"vacant_seconds": 1e300},
        {"count": 10**30},
        {"before": "\x1b[2J"},
        {"after": "a\N{RIGHT-TO-LEFT OVERRIDE}b"},
        {"before": "x" * 1001},
        {"component": {"component": "job", "job_id": "\x1b[2Jx"}},
        {"episode_id": "x" * 36},
        {"id": "x"},
        {"rule": "call +1 555 0100"},
        {"subjects": ["0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11"] * 5},
    ],
)
def test_an_alert_that_no_sidecar_writes_is_not_adopted(fields: dict[str, object]) -> None:
    """The sidecar begins without the document, ticks go on, and a leader that vanishes is notified."""
    with pytest.raises(HandoverError, match="it is no handover of a sidecar: delete it"):
        handover.read(poisoned(**fields), CLUSTER, at(150))


def test_whatever_reading_raises_the_document_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that read and write handovers go on."""

    def raises(*_: object) -> None:
        raise AttributeError("a mistake of ours")

    monkeypatch.setattr(handover_document, "unpacked", raises)
    with pytest.raises(HandoverError, match=r"it is no handover of a sidecar: delete it \(AttributeError\)"):
        handover.read(left_by(first_sight(), 11), CLUSTER, at(12))


@pytest.mark.parametrize("observer", ["\x1b[2J", "a\N{RIGHT-TO-LEFT OVERRIDE}b", "call +1 555 0100", "x" * 1000])
def test_the_name_of_the_sidecar_before_is_a_name(observer: str) -> None:
    """It stands in the log and in messages."""
    with pytest.raises(HandoverError):
        handover.read(forged(left_by(first_sight(), 140), observer=observer), CLUSTER, at(141))


def test_no_text_of_a_message_is_read() -> None:
    """Not why an observer is blind, and not what evidence says about jobs."""
    contents = handover.read(poisoned(missing="call +1 555 0100"), CLUSTER, at(150))
    assert contents
    assert {m.alert.missing for group in contents.alerts.groups.values() for m in group.members.values()} == {None}
    content = left_by([*first_sight(), *(gone(100, path) for path in PATHS)], 101)
    episode = document(content)["episode"]
    assert isinstance(episode, dict)
    contents = handover.read(
        forged(content, episode={**episode, "gathered": {"jobs": ["call"], "jobs_total": 9}}), CLUSTER, at(150)
    )
    assert contents
    assert contents.cluster.episode
    assert contents.cluster.episode.gathered.jobs == ()


def test_a_split_that_was_handed_over_ends() -> None:
    """It is over when nobody has returned for long enough, as any other."""
    content = left_by(first_sight(), 11)
    components = document(content)["components"]
    assert isinstance(components, list)
    for _, component in components:
        component["split_since"] = {"steady": 0, "wall": at(0).wall}
    state = begin(20, forged(content, components=components))
    state, effects = play(look(21, *(held(0, path, 1) for path in PATHS)), state, NEXT)
    assert not [effect for effect in effects if isinstance(effect, Quarantined)]
    state, _ = play([Ticked(at(90))], state, NEXT)
    assert state.clusters[CLUSTER].contested == frozenset()


def test_a_failover_with_more_components_away_than_there_are_is_closed() -> None:
    """How many are away is counted by the reader."""
    content = left_by([*first_sight(), *(gone(100, path) for path in PATHS)], 101)
    episode = document(content)["episode"]
    state = begin(110, forged(content, episode={**episode, "away": 900, "jobs_away": 900}))  # type: ignore[dict-item]
    _, effects = play(look(112, *(held(112, path, 2) for path in PATHS)), state, NEXT)
    assert len(records(EpisodeRecord, effects)) == 1


def test_more_alerts_than_a_tick_can_compare_are_not_adopted() -> None:
    """Rows of 130 kB made a tick of 20 s: what is handed over has an end, and what is read, too."""
    content = poisoned()
    groups = document(content)["groups"]
    assert isinstance(groups, dict)
    [group] = groups.values()
    one = next(iter(group["members"].values()))
    members = {str(UUID(int=n)): {**one, "alert": {**one["alert"], "id": str(UUID(int=n))}} for n in range(1, 502)}
    with pytest.raises(HandoverError):
        handover.read(forged(content, groups={key: {**group, "members": members} for key in groups}), CLUSTER, at(150))
    many = {str(UUID(int=n)): {**group, "members": dict([*members.items()][:2])} for n in range(300)}
    with pytest.raises(HandoverError, match="it holds more than 500 alerts"):
        handover.read(forged(content, groups=many), CLUSTER, at(150))


# -- plans -------------------------------------------------------------------------------------------------------------

UNWANTED = {"uid": "u", "generation": 2, "unwanted_since": {"steady": 0, "wall": at(0).wall}}
VANISH: list[Observation] = [*(gone(200, path) for path in PATHS), *(Ticked(at(200 + s)) for s in range(1, 40))]


def test_a_plan_whose_source_the_reader_does_not_have_is_not_adopted() -> None:
    """No FlinkDeployment exists for ZooKeeper: a forged one that is suspended hides no missing leader."""
    content = forged(left_by(first_sight(), 11), operated=UNWANTED)
    state, _ = play(look(151, *(held(0, path, 1) for path in PATHS)), begin(150, content), NEXT)
    assert state.clusters[CLUSTER].operated is None
    _, effects = play(VANISH, replace(state, outbox={}), NEXT)
    assert [title for title in sent(effects) if title.startswith("[DOWN]")]


@pytest.mark.parametrize("handed_over", [True, False])
def test_a_deployment_that_was_read_before_the_handover_stays_what_it_is(*, handed_over: bool) -> None:
    """It is no FlinkDeployment, which would be taken for deleted once all are listed: a leader that vanishes would be "stopped"."""
    policy = replace(NEXT, stores={CLUSTER: Store.ZOOKEEPER}, plans=frozenset({CLUSTER}))
    deployment = FlinkDeployment("u", 1, 1, kind=Maker.DEPLOYMENT, name="jm")
    seen = Seen(Maker.DEPLOYMENT, "jm", deployment, frozenset({"a"}), "", alone=True)
    content = left_by(first_sight(), 11)
    if handed_over:
        content = forged(content, operated={"uid": "u", "generation": 1, "kind": "Deployment", "name": "jm"})
    read = [
        MakerObserved(at(20), CLUSTER, seen),
        HandoverRead(at(20), CLUSTER, content),
        *look(21, *(held(0, path, 1) for path in PATHS)),
        MakersListed(at(40), CLUSTER, {"": frozenset({Candidate(Maker.DEPLOYMENT, "jm")})}),
    ]
    state, _ = play([Started(at(20)), *read], policy=policy)
    operated = state.clusters[CLUSTER].operated
    assert operated
    assert (operated.kind, operated.name, operated.unwanted_since, operated.is_read) == ("Deployment", "jm", None, True)
    _, effects = play([*(gone(100, path) for path in PATHS), *(Ticked(at(s)) for s in range(101, 140))], state, policy)
    assert [title for title in sent(effects) if title.startswith("[DOWN]")]


def test_a_plan_that_is_not_confirmed_expires() -> None:
    """Who reads FlinkDeployments believes for ten minutes that the cluster is suspended, and not longer without reading it."""
    policy = replace(NEXT, stores={CLUSTER: Store.ZOOKEEPER}, plans=frozenset({CLUSTER}))
    state = begin(20, forged(left_by(first_sight(), 11), operated=UNWANTED), policy)
    state, _ = play(look(21, *(held(0, path, 1) for path in PATHS)), state, policy)
    assert state.clusters[CLUSTER].operated
    lost: list[Observation] = [*(gone(100, path) for path in PATHS), *(Ticked(at(s)) for s in range(101, 600))]
    during, effects = play(lost, state, policy)
    assert sent(effects) == []
    _, effects = play([Ticked(at(s)) for s in range(600, 660)], during, policy)
    assert [title for title in sent(effects) if title.startswith("[DOWN]")]
    later: list[Observation] = [*(gone(700, path) for path in PATHS), *(Ticked(at(s)) for s in range(701, 740))]
    _, effects = play(later, state, policy)
    assert [title for title in sent(effects) if title.startswith("[DOWN]")]


def test_a_failover_is_not_planned_because_a_handover_says_so() -> None:
    """Neither the failover in progress nor an alert, where the reader could not know it."""
    planned = [*first_sight(), *(gone(100, path) for path in PATHS), *(Ticked(at(100 + s)) for s in (31, 37))]
    content = left_by(planned, 140)
    fields = document(content)
    episode, groups = fields["episode"], fields["groups"]
    assert isinstance(episode, dict)
    assert isinstance(groups, dict)
    intent = {"plan": "suspension", "after": 0}
    for group in groups.values():
        for member in group["members"].values():
            member["alert"]["labels"] = {"planned": "true"}
    content = forged(content, episode={**episode, "facts": {**episode["facts"], "intent": intent}}, groups=groups)
    state = begin(150, content)
    taken = state.clusters[CLUSTER].episode
    assert taken
    assert taken.facts.intent is None
    labels = [m.alert.labels for group in state.alerts.groups.values() for m in group.members.values()]
    assert [alert_labels.get("planned") for alert_labels in labels] == [None] * 3


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
        "picture",
        "job_faults",
        "assessed",
        "rest_server",
        "drilled",
    }
    anew = {
        "ends",
        "account",
        "stated",
        "beyond",
        "peers",
        "readiness",
        "picture_kept",
        "picture_now",
        "picture_request",
        "recovery",
        "recovering",
        "view",
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
        "departed",
        "handed_over_by",
    }
    assert handed_over | anew == {*ClusterState.__struct_fields__}
