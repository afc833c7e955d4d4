"""The judge of a night finds a planted lie of each kind, and none in what was true."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.night.arrivals import Said
from tests.night.claims import Kind
from tests.night.judge import judge
from tests.night.night import Played
from tests.night.scenario import BOTH, KUBERNETES, ZOOKEEPER, Scenario
from tests.night.scenarios import SCENARIOS
from tests.night.surfaces import Surface
from tests.night.truth import End, Sample

A, B = "127.0.0.1:1111", "127.0.0.1:2222"
KILLED = SCENARIOS["the leader is killed"]
ROLLED = SCENARIOS["a Deployment is rolled out, one after the other"]


def truth() -> list[Sample]:
    """A leads two jobs; it is killed after 10 s, B leads after 20 s, and the jobs run after 30 s. Noted each second, from second 1000."""
    return [
        Sample(1000.0 + second, A if second < 10 else None if second < 20 else B, *_rest(second))
        for second in range(60)
    ]


def _rest(second: int) -> tuple[int | None, int | None]:
    return (2, 1) if second < 10 or second >= 30 else (None, None) if second < 20 else (0, 1)


def said(at: float, status: str, sentence: str, **more: Any) -> Said:
    """A message of the webhook, `at` seconds after the beginning."""
    fields: dict[str, Any] = {
        "text": "",
        "green": status == "OK",
        "facts": {"episode": "e", "cause": "jobmanager_lost (high confidence)"},
    }
    return Said(
        1000.0 + at, "webhook", f"[{status}] lab: {sentence}", status=status, sentence=sentence, **fields | more
    )


RECORDS: list[dict[str, Any]] = [
    {
        "type": "episode",
        "id": "e",
        "cause": "jobmanager_lost",
        "confidence": "high",
        "planned": None,
        "downtime_seconds_at_least": 9.0,
        "downtime_seconds_at_most": 11.0,
    },
    {
        "type": "death",
        "reason": "killed",
        "confidence": "high",
        "address": f"pekko.tcp://flink@{A}/user",
        "exit_code": 137,
    },
    {"type": "recovery", "job_id": None, "verdict": "recovered"},
    {"type": "status", "status": "OK"},
]


def record(kind: str, **changes: Any) -> list[dict[str, Any]]:
    """The records, of which that of a kind is another one."""
    return [each | changes if each["type"] == kind else each for each in RECORDS]


HONEST = Played(
    "the leader is killed",
    *("zookeeper", "2.3.0", 1000.0, 1010.0, 1060.0, A, 2),
    truth(),
    [End(1010.0, (A,), 137, "killed")],
    [
        said(
            22,
            "RECOVERING",
            f"{B} leads after 10 s, 0 of 2 jobs run",
            reason="FIRST",
            began=1020.0,
            alerts=("FlinkLeaderChanged",),
        ),
        said(34, "OK", "2 of 2 jobs run again, 20 s after jm-0 was killed"),
    ],
    [
        Surface(1005.0, "OK", "2 of 2 jobs run", "OK", "OK"),
        Surface(1015.0, "DOWN", "no leader for 5 s"),
        Surface(1055.0, "OK"),
    ],
    RECORDS,
)


def found(played: Played, scenario: Scenario = KILLED) -> list[Kind]:
    return [finding.kind for finding in judge(played, scenario).findings]


def test_what_is_true_is_right() -> None:
    """Nothing is found, and every fact counts as right."""
    verdict = judge(HONEST, KILLED)
    assert verdict.findings == ()
    assert {one.what: one.right for one in verdict.judged} == {
        "cause": True,
        "death": True,
        "recovery": True,
        "planned": None,
    }
    assert verdict.said_after == 12.0


def test_a_split_is_true_where_two_take_turns() -> None:
    """Flink 1.20 does it after some outages of its store; where one leader follows another it is a lie."""
    turns = [Sample(1000.0 + second, (A, B)[second % 2], None, None) for second in range(60)]
    split = also(said(40, "SPLIT", "two JobManagers act as leader of 4 components"))
    findings = judge(replace(split, truth=turns), KILLED).findings
    assert not any("SPLIT" in finding.words for finding in findings)
    assert any("never true here" in finding.words for finding in judge(split, KILLED).findings)


def also(one: Said) -> Played:
    """The honest night, and one more message."""
    return replace(HONEST, said=sorted([*HONEST.said, one], key=lambda each: each.at))


def first(**changes: Any) -> Played:
    """The honest night, whose first message is another one."""
    return replace(HONEST, said=[replace(HONEST.said[0], **changes), *HONEST.said[1:]])


def last(**changes: Any) -> Played:
    return replace(HONEST, said=[*HONEST.said[:-1], replace(HONEST.said[-1], **changes)])


LONG = f"[RECOVERING] lab: {B} leads after 10 s, 0 of 2 jobs run, and what nobody wants to know at three in the morning"
LIES: dict[Kind, list[Played]] = {
    Kind.GREEN: [
        also(said(26, "OK", "2 of 2 jobs run again")),
        also(Said(1026.0, "slack", "[RECOVERING] lab: it", green=True)),
    ],
    Kind.DEATH: [
        replace(HONEST, records=record("death", reason="stopped")),
        replace(HONEST, records=record("death", exit_code=239)),
        replace(HONEST, records=record("death", address=B)),
    ],
    Kind.CAUSE: [replace(HONEST, records=record("episode", cause="store_outage"))],
    Kind.RECOVERY: [replace(HONEST, records=record("recovery", verdict="lost"))],
    Kind.PLANNED: [replace(HONEST, records=record("episode", planned=True))],
    Kind.STATUS: [also(said(8, "DOWN", "no leader")), also(said(50, "STOPPED", "no leader is wanted"))],
    Kind.SENTENCE: [
        last(sentence=f"{A} leads", title=f"[OK] lab: {A} leads"),
        last(sentence="1 of 2 jobs run", title="[OK] lab: 1 of 2 jobs run"),
        replace(HONEST, surfaces=[Surface(1015.0, "DOWN", "no leader for 50 s"), HONEST.surfaces[-1]]),
    ],
    Kind.DURATION: [
        replace(HONEST, records=record("episode", downtime_seconds_at_most=5.0, downtime_seconds_at_least=0.0)),
        last(title="[OK] lab: 2 of 2 jobs run again, 3.5 to 9.2 s after jm-0 was lost", sentence=""),
    ],
    Kind.TITLE: [
        first(title=LONG),
        first(text="x" * 601),
        first(title="lab: failed over"),
        first(title="[WARNING] lab: failed over"),
        first(title="[RECOVERING] lab: something else"),
    ],
    Kind.SURFACES: [
        replace(HONEST, surfaces=[*HONEST.surfaces, Surface(1058.0, "OK", page="DEGRADED")]),
        replace(HONEST, surfaces=[*HONEST.surfaces, Surface(1058.0, "OK", command="OK", exit_status=1)]),
        replace(HONEST, surfaces=[*HONEST.surfaces, Surface(1058.0, "OK", causes=("unknown", "store_outage"))]),
        replace(HONEST, records=record("status", status="RECOVERING")),
        last(facts={"episode": "e", "cause": "unknown (none confidence)"}),
    ],
    Kind.LATE: [first(at=1033.0, sentence="2 of 2 jobs run", title="[RECOVERING] lab: 2 of 2 jobs run")],
    Kind.UNSAID: [replace(HONEST, said=[])],
    Kind.END: [
        replace(HONEST, surfaces=[*HONEST.surfaces, Surface(1058.0, "RECOVERING")]),
        replace(HONEST, said=HONEST.said[:1]),
    ],
}


@pytest.mark.parametrize(("kind", "played"), [(kind, played) for kind, all_ in LIES.items() for played in all_])
def test_a_lie_is_found(kind: Kind, played: Played) -> None:
    """One of each kind, told in one place."""
    assert kind in found(played)


def test_a_planned_action_is_not_red() -> None:
    """Also where it is true that nobody leads. And nothing is said where nothing is to be said."""
    down = said(15, "DOWN", "no leader for 5 s")
    assert Kind.RED in found(replace(HONEST, said=[down, *HONEST.said]), ROLLED)
    assert Kind.NOISE in found(HONEST, SCENARIOS["nothing happens"])


def test_the_night_is_long_enough() -> None:
    """For each store at least 24 failures and 12 planned actions; a row has a place to be played."""
    for store in ("zookeeper", "kubernetes"):
        rows = [row for row in SCENARIOS.values() if store in row.stores]
        assert sum(not row.planned for row in rows) >= 24
        assert sum(row.planned for row in rows) >= 12
    assert {row.stores for row in SCENARIOS.values()} == {BOTH, ZOOKEEPER, KUBERNETES}
