"""Evidence of a failover is asked for once, at its time, and whatever comes of that is recorded."""

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.compose import MOST_BODY
from sidecar.core.captures import Capture, CaptureOutcome, EvidenceItem, EvidenceKind, Occasion
from sidecar.core.capturing import CALM, LIMIT, MOST_JOBS, MOST_PIECES, MOST_ROUNDS, MOST_TOLD, PATIENCE, SOON
from sidecar.core.cluster.record_lines import record_line
from sidecar.core.failover.episodes import JOB_PATIENCE, SETTLED
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.moment import SECOND
from sidecar.core.observations import EvidenceGathered
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.records import Evidence
from tests.kit.cluster import ALL_FOUR, CLUSTER, JOB, REST_SERVER, THE_JOB, A, B, job_manager
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, watching
from tests.kit.fake_flink import Flink

EVERYTHING = replace(POLICY, evidence=frozenset(Source))
DUMP = EvidenceItem(
    EvidenceKind.THREAD_DUMP,
    "pid 17 (java)",
    CaptureOutcome.CAPTURED,
    file="e/opened-thread_dump-17.txt",
    size_bytes=9,
    sha256="ab",
    attributes={"threads": "3"},
)
RESTORED = EvidenceItem(EvidenceKind.JOB, JOB, CaptureOutcome.CAPTURED, f"orders ({JOB}): restored from checkpoint 17")


def gathering(policy: Policy = EVERYTHING) -> tuple[Flink, Sidecar]:
    return watching(policy=policy)


def asked(sidecar: Sidecar) -> list[tuple[Occasion, Source]]:
    return [(capture.occasion, capture.source) for capture in sidecar.asked]


def answer(sidecar: Sidecar, capture: Capture, *pieces: EvidenceItem) -> None:
    sidecar.observe(EvidenceGathered(sidecar.moment, capture.id, pieces))


def recorded(sidecar: Sidecar) -> list[Evidence]:
    return [record for record in sidecar.records if isinstance(record, Evidence)]


def test_processes_are_looked_at_as_soon_as_a_component_leaves_its_leader() -> None:
    """Whoever led may still run, and not for long: half a second is the longest that it takes."""
    flink, sidecar = gathering()
    sidecar.sees(flink.vacate(REST_SERVER)).waits(0.5)
    assert asked(sidecar) == [(Occasion.OPENED, Source.PROCESSES)]
    assert sidecar.asked[0].episode_id == sidecar.transitions()[0].episode_id


def test_flink_is_asked_once_when_all_are_led_again() -> None:
    """At once, so that the message can say what it answered: where the leader is, and which jobs moved."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar)
    assert asked(sidecar) == [(Occasion.OPENED, Source.PROCESSES)]
    sidecar.waits(SOON / SECOND)
    assert asked(sidecar)[1:] == [(Occasion.LED_AGAIN, Source.FLINK_REST)]
    assert (sidecar.asked[1].rest_address, sidecar.asked[1].jobs) == ("http://jm-b:8081", (JOB,))
    sidecar.waits(SETTLED / SECOND)
    assert len(sidecar.episodes()) == 1
    assert len(sidecar.asked) == 2


def test_jobs_that_may_be_about_to_move_are_waited_for() -> None:
    """In Kubernetes a job's old address stands there until its next JobMaster writes another one."""
    flink, sidecar = gathering()
    own = ALL_FOUR[:-1]
    fail_over(flink, sidecar, 2, B, *own).waits(2)
    sidecar.sees(flink.elect(B, THE_JOB))
    assert len(sidecar.asked) == 1
    sidecar.waits(0.5)
    assert sidecar.asked[1].jobs == (JOB,)


def test_a_job_that_does_not_move_is_not_waited_for_until_the_failover_is_over() -> None:
    """A little, and then Flink is asked without it."""
    flink, sidecar = gathering()
    own = ALL_FOUR[:-1]
    fail_over(flink, sidecar, 2, B, *own).waits(CALM / SECOND - 0.5)
    assert len(sidecar.asked) == 1
    sidecar.waits(0.5)
    assert sidecar.asked[1].jobs == ()
    assert CALM < SETTLED


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([], []),
        ([Source.PROCESSES], [(Source.PROCESSES, 0, False)]),
        ([Source.FLINK_REST], [(Source.FLINK_REST, 1, False)]),
        ([Source.LEADER_THREAD_DUMP], [(Source.FLINK_REST, 0, True)]),
    ],
)
def test_nothing_is_asked_but_what_the_operator_wants(
    sources: list[Source], expected: list[tuple[Source, int, bool]]
) -> None:
    """Each source by itself; by default none."""
    flink, sidecar = gathering(replace(POLICY, evidence=frozenset(sources)))
    fail_over(flink, sidecar).waits(SETTLED / SECOND + 1)
    assert [(capture.source, len(capture.jobs), capture.thread_dump) for capture in sidecar.asked] == expected


def test_a_failover_that_comes_before_the_last_one_is_over_is_looked_at_as_well() -> None:
    """One episode, and a round for each failover in it; but not for ever."""
    flink, sidecar = gathering()
    for number in range(2 * MOST_ROUNDS):
        fail_over(flink, sidecar, 1, job_manager("jm-c", number)).waits(1)
    assert len({capture.episode_id for capture in sidecar.asked}) == 1
    expected = [(number, occasion) for number in range(1, MOST_ROUNDS + 1) for occasion in Occasion]
    assert [(capture.round, capture.occasion) for capture in sidecar.asked] == expected
    assert len({capture.id for capture in sidecar.asked}) == 2 * MOST_ROUNDS


def test_not_even_one_that_comes_at_once_is_overlooked() -> None:
    """The next leader goes before Flink could be asked: it is looked at all the same."""
    flink, sidecar = gathering()
    for leader in (B, job_manager("jm-c")):
        fail_over(flink, sidecar, 0.25, leader)
    assert [(capture.round, capture.occasion) for capture in sidecar.asked] == [(1, "opened"), (2, "opened")]


def test_a_failover_without_a_visible_vacancy_is_looked_at_as_well() -> None:
    """Nobody saw the second leader go: the third one has written over its address."""
    flink, sidecar = gathering()
    for leader in (B, job_manager("jm-c")):
        sidecar.sees(flink.elect(leader)).waits(1)
    expected = [(number, occasion) for number in (1, 2) for occasion in Occasion]
    assert [(capture.round, capture.occasion) for capture in sidecar.asked] == expected


def test_while_nothing_is_in_sight_flink_is_not_asked() -> None:
    """Else it would be reported that nobody leads. It is made good afterwards, by the next process too."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar).is_cut_off().waits(20)
    assert len(sidecar.asked) == 1
    sidecar.is_killed().waits(20)
    assert len(sidecar.asked) == 1
    sidecar.connects().waits(1)
    assert sidecar.asked[1].rest_address == "http://jm-b:8081"


def test_what_is_known_of_jobs_is_what_the_latest_failover_came_to() -> None:
    """Files are counted, of all."""
    flink, sidecar = gathering()
    for number in (1, 2):
        fail_over(flink, sidecar, 1, job_manager("jm-c", number)).waits(1)
        answer(sidecar, sidecar.asked[-2], DUMP)
        answer(sidecar, sidecar.asked[-1], replace(RESTORED, detail=f"restored from checkpoint {number}"))
    episode = sidecar.state.clusters[CLUSTER].episode
    assert episode
    assert (episode.gathered.files, episode.gathered.jobs) == (2, ("restored from checkpoint 2",))


def test_jobs_that_stay_without_a_leader_are_not_waited_for_for_ever() -> None:
    """Flink is asked without them, long before the failover is given up."""
    flink, sidecar = gathering()
    sidecar.sees(flink.vacate())
    for component in ALL_FOUR[:-1]:
        flink.elect(B, component)
    sidecar.sees_changes().waits(PATIENCE / SECOND - 1)
    assert len(sidecar.asked) == 1
    sidecar.waits(2)
    assert asked(sidecar)[1:] == [(Occasion.LED_AGAIN, Source.FLINK_REST)]
    assert PATIENCE < JOB_PATIENCE


def test_a_late_turn_does_not_lose_the_question() -> None:
    """The machine slept until the failover was long over: Flink is asked all the same."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar).waits(60, tick=60)
    assert asked(sidecar) == [(Occasion.OPENED, Source.PROCESSES), (Occasion.LED_AGAIN, Source.FLINK_REST)]
    assert len(sidecar.episodes()) == 1


def test_the_next_failover_is_asked_for_anew() -> None:
    """Another episode, another request; also where the same leader comes back to the same place."""
    flink, sidecar = gathering()
    for leader in (B, job_manager("jm-a", 1), job_manager("jm-b", 1)):
        fail_over(flink, sidecar, 1, leader).waits(SETTLED / SECOND + 1)
    assert len({capture.id for capture in sidecar.asked}) == len(sidecar.asked) == 6


def test_of_a_storm_a_few_jobs_are_asked_for() -> None:
    """The same ones, whoever asks."""
    flink, sidecar = gathering()
    for number in range(3 * MOST_JOBS):
        flink.submit(f"{number:032x}").elect(A, ComponentId(Component.JOB, f"{number:032x}"))
    sidecar.sees_changes().waits(60).sees(flink.vacate())
    for component in sidecar.state.clusters[CLUSTER].components:
        flink.elect(B, component)
    sidecar.sees_changes().waits(2)
    assert sidecar.asked[-1].jobs == tuple(f"{number:032x}" for number in range(MOST_JOBS))
    assert sidecar.asked[-1].jobs_beyond == 2 * MOST_JOBS + 1


def test_that_others_were_not_asked_for_is_recorded() -> None:
    """And a message counts them too."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar).waits(1)
    storm = replace(sidecar.asked[1], jobs_beyond=30)
    sidecar.state = replace(sidecar.state, captures={storm.id: storm})
    answer(sidecar, storm, *[RESTORED] * MOST_JOBS)
    last = recorded(sidecar)[-1]
    assert (last.kind, last.subject, last.outcome) == ("job", "others", "failed")
    assert (last.detail or "").startswith("30 more jobs moved")
    sidecar.waits(10)
    assert sidecar.sent[-1].body.endswith(f"… and {MOST_JOBS + 30 - MOST_TOLD} more jobs")


def test_what_was_captured_is_recorded_as_a_part_of_its_failover() -> None:
    """One record for each piece, with an id of its own; the state owes nothing more."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar)
    answer(sidecar, sidecar.asked[0], DUMP, DUMP)
    first, second = recorded(sidecar)
    assert first.id != second.id
    assert (first.episode_id, first.occasion, first.kind, first.subject, first.outcome) == (
        *(sidecar.asked[0].episode_id, "opened", "thread_dump", "pid 17 (java)", "captured"),
    )
    assert (first.file, first.size_bytes, first.sha256, first.attributes) == (DUMP.file, 9, "ab", {"threads": "3"})
    assert "thread_dump of pid 17 (java): captured in e/opened-thread_dump-17.txt" in record_line(first)
    assert not sidecar.state.captures


def test_an_answer_counts_once() -> None:
    """A second one, and one that nobody asked for, change nothing."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar)
    answer(sidecar, sidecar.asked[0], DUMP)
    answer(sidecar, sidecar.asked[0], DUMP)
    answer(sidecar, replace(sidecar.asked[0], id="another"), DUMP)
    assert len(recorded(sidecar)) == 1


def test_an_answer_is_bounded() -> None:
    """Whatever the shell brings."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar)
    answer(sidecar, sidecar.asked[0], *[DUMP] * (MOST_PIECES + 5))
    assert len(recorded(sidecar)) == MOST_PIECES


def test_what_nobody_brings_is_recorded_as_lost() -> None:
    """After a while; it is not asked for again."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar).waits(LIMIT / SECOND - 10, tick=5)
    assert recorded(sidecar) == []
    sidecar.waits(20, tick=5)
    assert {record.outcome for record in recorded(sidecar)} == {"lost"}
    assert [record.kind for record in recorded(sidecar)] == ["process", "job", "thread_dump"]
    assert len(sidecar.asked) == 2


def test_what_a_dead_sidecar_had_asked_for_is_lost_and_reported_as_such() -> None:
    """The next process on the same disk says so at once, and what it answers to a late child is nothing."""
    flink, sidecar = gathering()
    sidecar.sees(flink.vacate()).waits(1).is_killed()
    (lost,) = recorded(sidecar)
    assert (lost.outcome, lost.detail) == ("lost", "the sidecar ended meanwhile")
    answer(sidecar, sidecar.asked[0], DUMP)
    sidecar.connects().waits(1)
    assert (len(sidecar.asked), len(recorded(sidecar))) == (1, 1)


def test_a_message_says_from_where_jobs_were_restored() -> None:
    """And how many files there are, and at which observer."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar).waits(2)
    answer(sidecar, sidecar.asked[0], DUMP)
    answer(sidecar, sidecar.asked[1], replace(DUMP, file="e/led_again-thread_dump-0.txt"), RESTORED)
    sidecar.waits(10)
    (first,) = sidecar.sent
    assert f"orders ({JOB}): restored from checkpoint 17" in first.body.splitlines()
    assert dict(first.facts)["evidence"] == "2 files at sidecar-0"


def test_where_it_was_not_known_at_first_the_all_clear_says_it() -> None:
    """The job was led again long after the dispatcher."""
    flink, sidecar = gathering()
    sidecar.sees(flink.vacate()).waits(2)
    for component in ALL_FOUR[:-1]:
        flink.elect(B, component)
    sidecar.sees_changes().waits(10).sees(flink.elect(B, THE_JOB)).waits(2)
    answer(sidecar, sidecar.asked[1], RESTORED)
    sidecar.waits(120)
    assert [delivery.reason for delivery in sidecar.sent] == ["FIRST", "RESOLVED"]
    assert ["restored from checkpoint 17" in delivery.body for delivery in sidecar.sent] == [False, True]


def test_a_message_names_a_few_jobs_and_how_many_others_there_are() -> None:
    """Three lines of sixty."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar).waits(2)
    answer(sidecar, sidecar.asked[1], *[RESTORED] * 60)
    sidecar.waits(10)
    lines = sidecar.sent[-1].body.splitlines()
    assert lines[-4:] == [*[RESTORED.detail] * MOST_TOLD, "… and 57 more jobs"]


def test_what_flink_says_of_jobs_is_untrusted() -> None:
    """Printable lines, and few characters, whatever it is."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar).waits(2)
    answer(sidecar, sidecar.asked[1], *[replace(RESTORED, detail="\x1b[2J\nrestored" + "\N{GRINNING FACE}" * 110)] * 5)
    sidecar.waits(10)
    lines = sidecar.sent[-1].body.splitlines()
    assert lines[-1] == "… and 1 more line in `explain`"
    assert len("\n".join(lines)) <= MOST_BODY
    assert all(line.isprintable() for line in lines)


def test_a_job_that_moves_by_itself_is_no_failover() -> None:
    """Nothing is captured of it."""
    flink, sidecar = gathering()
    fail_over(flink, sidecar, 1, job_manager("jm-a", 1), THE_JOB).waits(30)
    assert sidecar.asked == []
