"""Several observers of one cluster: what a blind one keeps to itself, and what of Flink each of them reports, with how many share it."""

import pytest
from msgspec.structs import replace

from sidecar.core.agreement import FRESH, Agreement, Opinion, Peers, agreed_blindness, agreed_silence, agreed_vacancy
from sidecar.core.flink.leadership import Component
from sidecar.core.moment import SECOND
from sidecar.core.observations import ConnectionState, PeersAsked
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import Trigger
from sidecar.core.reach import Reach
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import BY_ALERT, NO_LEADER, Sidecar, watching

BLIND = Rule("Blind", Trigger.BLIND, Severity.CRITICAL, hold_for=20 * SECOND)
POLICY = replace(BY_ALERT, rules=(BLIND, NO_LEADER))
SEES, CANNOT = Opinion("b", sees=True), Opinion("b", sees=False)
OWN = (Component.DISPATCHER, Component.RESOURCE_MANAGER, Component.REST_SERVER)
VACANT = Opinion("b", sees=True, vacant=OWN)


def third(opinion: Opinion) -> Opinion:
    return replace(opinion, observer="c")


@pytest.mark.parametrize(
    ("others", "opinions", "agreement"),
    [
        (0, (), None),
        (1, (), Agreement(1, 1, 2)),
        (1, (SEES,), Agreement(1, 2, 2)),
        (1, (CANNOT,), Agreement(2, 2, 2)),
        (2, (SEES,), Agreement(1, 2, 3)),
        (2, (SEES, third(CANNOT)), Agreement(2, 3, 3)),
    ],
)
def test_of_those_that_answer_a_blind_observer_agrees_with_those_that_are_blind(
    others: int, opinions: tuple[Opinion, ...], agreement: Agreement | None
) -> None:
    """None: no other observer is known."""
    assert agreed_blindness(Peers(others, opinions)) == agreement


@pytest.mark.parametrize(
    ("opinions", "agreement"),
    [
        ((), Agreement(1, 1, 3)),
        ((SEES,), Agreement(1, 2, 3)),
        ((VACANT,), Agreement(2, 2, 3)),
        ((CANNOT, third(VACANT)), Agreement(2, 2, 3)),
        ((CANNOT, third(CANNOT)), Agreement(1, 1, 3)),
        ((SEES, third(VACANT)), Agreement(2, 3, 3)),
    ],
)
def test_on_a_vacancy_a_blind_observer_has_no_vote(opinions: tuple[Opinion, ...], agreement: Agreement) -> None:
    """Nor has one that does not answer."""
    assert agreed_vacancy(Peers(2, opinions), Component.DISPATCHER) == agreement


def test_each_component_is_a_question_of_its_own() -> None:
    """What another observer sees vacant says nothing of the other components."""
    assert agreed_vacancy(Peers(1, (VACANT,)), Component.JOB) == Agreement(1, 2, 2)


@pytest.mark.parametrize(
    ("reach", "agreement"),
    [
        (None, Agreement(1, 1, 2)),
        (Reach.ANSWERS, Agreement(1, 2, 2)),
        (Reach.SILENT, Agreement(2, 2, 2)),
        (Reach.UNREACHABLE, Agreement(2, 2, 2)),
    ],
)
def test_on_a_silent_leader_only_those_that_ask_it_have_a_vote(reach: Reach | None, agreement: Agreement) -> None:
    """Whatever keeps the answer from them."""
    assert agreed_silence(Peers(1, (replace(SEES, reach=reach),))) == agreement


@pytest.mark.parametrize(
    ("sharing", "connected", "outvoted"), [(1, 1, False), (1, 2, True), (2, 2, False), (2, 3, False), (2, 4, True)]
)
def test_half_is_no_majority(sharing: int, connected: int, outvoted: bool) -> None:
    """One that is alone is a majority of one."""
    assert Agreement(sharing, connected, 9).is_outvoted == outvoted


class TestBlind:
    """An observer that is cut off, and what the others answer."""

    def test_one_that_others_do_not_share_is_recorded_and_not_sent(self) -> None:
        """As 1 of 2, when it would have been sent. Its end is no message either."""
        sidecar = cut_off()
        asked_for(sidecar, 120, SEES)
        [record] = sidecar.notifications()
        assert (record.alert, record.reason, record.outcome) == ("Blind", "SUPPRESSED_BY_OBSERVERS", "suppressed")
        assert (record.observers_sharing, record.observers_connected, record.observers_known) == (1, 2, 2)
        sidecar.connects().waits(120)
        assert sidecar.sent == []
        assert len(sidecar.notifications()) == 1

    def test_one_that_all_share_pages_as_ever(self) -> None:
        """With how many share it, in the message and in the record."""
        sidecar = cut_off()
        asked_for(sidecar, 30, CANNOT)
        [delivery] = sidecar.sent
        assert "changes are not observed (2 of 2 observers)" in delivery.body
        assert {(n.observers_sharing, n.observers_connected) for n in sidecar.notifications()} == {(2, 2)}

    def test_nobody_answers_and_it_pages(self) -> None:
        """It says that it is the only one to say so."""
        sidecar = cut_off()
        asked_for(sidecar, 30)
        assert "(only this observer: the other one does not answer)" in sidecar.sent[0].body

    def test_no_other_observer_is_known_and_nothing_is_said_of_others(self) -> None:
        """As before there were any."""
        sidecar = cut_off()
        sidecar.waits(30)
        assert "observer" not in sidecar.sent[0].body
        assert {record.observers_known for record in sidecar.notifications()} == {None}

    def test_the_others_are_cut_off_later_and_it_pages_at_once(self) -> None:
        """Not only with the next interval of its group."""
        sidecar = cut_off()
        asked_for(sidecar, 60, SEES)
        sidecar.observe(PeersAsked(sidecar.moment, CLUSTER, 1, (CANNOT,)))
        sidecar.waits(0.5)
        assert sidecar.sent_reasons() == [("Blind", "FIRST")]

    def test_an_answer_that_is_too_old_counts_no_longer(self) -> None:
        """The others may have ended since."""
        sidecar = cut_off()
        asked_for(sidecar, 60, SEES)
        sidecar.waits(FRESH / SECOND - 6)
        assert sidecar.sent == []
        sidecar.waits(7)
        assert sidecar.sent_reasons() == [("Blind", "FIRST")]

    def test_one_that_has_paged_is_resolved_by_a_message(self) -> None:
        """Though others could read the store before the end."""
        sidecar = cut_off()
        asked_for(sidecar, 30)
        asked_for(sidecar, 30, SEES)
        sidecar.connects().waits(300)
        assert sidecar.sent_reasons() == [("Blind", "FIRST"), ("Blind", "RESOLVED")]


def cut_off() -> Sidecar:
    """An observer whose connection is lost."""
    _, sidecar = watching(policy=POLICY)
    return sidecar.is_cut_off(ConnectionState.LOST)


def vacant() -> Sidecar:
    """An observer that sees no leader."""
    flink, sidecar = watching(policy=POLICY)
    flink.vacate()
    return sidecar.sees_changes()


def asked_for(sidecar: Sidecar, seconds: int, *opinions: Opinion, others: int = 1) -> None:
    """The others are asked every five seconds, and answer this."""
    for _ in range(seconds // 5):
        sidecar.observe(PeersAsked(sidecar.moment, CLUSTER, others, opinions))
        sidecar.waits(5)


@pytest.mark.parametrize(
    ("opinions", "text"),
    [
        ((VACANT,), " (2 of 2 observers)"),
        ((SEES,), " (only this observer, of 2 that answer)"),
        ((), " (only this observer: the other one does not answer)"),
    ],
)
def test_a_vacancy_pages_whatever_others_see(opinions: tuple[Opinion, ...], text: str) -> None:
    """A store's server may be behind: which one, nobody can know. The message says who shares it."""
    sidecar = vacant()
    asked_for(sidecar, 40, *opinions)
    lines = sidecar.sent[0].body.splitlines()
    assert [line.endswith(text) for line in lines if line.startswith("JobManager: no leader since")] == [True]
    assert sidecar.notifications()[0].observers_sharing == len([opinion for opinion in opinions if opinion.vacant]) + 1


def test_more_than_two_others_that_do_not_answer_are_counted() -> None:
    """In words."""
    sidecar = vacant()
    asked_for(sidecar, 40, others=3)
    assert "(only this observer: none of the other 3 answers)" in sidecar.sent[0].body
