"""In Kubernetes nobody deletes what a dead leader has written: who leads follows from the lease, one rule after the other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.cluster.record_lines import transition_line
from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId
from sidecar.core.journal_rows import changes
from sidecar.core.moment import SECOND
from sidecar.core.views.leader_view import leaders
from sidecar.core.views.snapshot import Snapshot
from tests.kit.cluster import ALL_FOUR, DISPATCHER, RESOURCE_MANAGER, REST_SERVER, THE_JOB, A, B, job_manager
from tests.kit.config_maps import ONE, ConfigMaps
from tests.kit.core_sidecar import LeaseSidecar, leased
from tests.kit.fake_flink import Flink
from tests.kit.groups import examples

A_AGAIN = job_manager("jm-a", term=1)


def patterns(sidecar: LeaseSidecar, component: ComponentId = DISPATCHER) -> list[str]:
    return [t.pattern for t in sidecar.transitions(component)]


def reasons(sidecar: LeaseSidecar) -> set[str | None]:
    """The reasons of all vacancies."""
    return {t.reason for t in sidecar.transitions() if t.pattern.endswith("null")}


# -- a leader that lives -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ConfigMapLayout)
def test_a_leader_is_held_by_its_value_and_its_lease(era: ConfigMapLayout) -> None:
    """Found at first sight, all four; where that shows it, with the versions that keep it there."""
    sidecar = LeaseSidecar(Flink(ConfigMaps(era)).grant(A).submit().publish_all(A))
    sidecar.connects()
    assert {(t.pattern, t.after_address) for t in sidecar.transitions()} == {
        ("?->A", A.leads(c).address) for c in ALL_FOUR
    }
    shown = {leader.component: leader for leader in leaders(Snapshot(sidecar.moment, sidecar.state))}
    assert shown["job"].flink == era.value
    assert shown["dispatcher"].flink == (era.value if era is ConfigMapLayout.K1 else None)
    assert {leader.state for leader in shown.values()} == {"held"}


@pytest.mark.parametrize("era", ConfigMapLayout)
def test_a_renewal_is_never_a_transition_and_writes_nothing_down(era: ConfigMapLayout) -> None:
    """Not one record and not one row in a quarter of an hour."""
    flink, sidecar = leased(era=era)
    before = sidecar.state.clusters
    for _ in range(180):
        sidecar.sees(flink.config_maps.renew())
        sidecar.now += 5_000_000
    assert sidecar.records == []
    assert list(changes(replace(sidecar.state, clusters=before), sidecar.state)) == []


def test_a_confirmation_that_nothing_changed_is_quiet_while_the_lease_lives() -> None:
    """To the last moment of its duration and the margin."""
    _, sidecar = leased()
    sidecar.hears_nothing(15)
    assert sidecar.transitions() == []


def test_others_write_into_the_config_map_too() -> None:
    """A label, a checkpoint, whatever: the resource version rises, and nothing happened."""
    flink, sidecar = leased()
    for _ in range(5):
        sidecar.sees(flink.config_maps.write(ONE))
    assert sidecar.transitions() == []


# -- a lease that runs out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ConfigMapLayout)
def test_a_lease_that_is_not_renewed_runs_out(era: ConfigMapLayout) -> None:
    """kill -9: after its duration and the margin nobody leads, and that it rests on the lease is said."""
    _, sidecar = leased(era=era)
    died = sidecar.now
    sidecar.hears_nothing(30)
    for component in ALL_FOUR:
        (revoked,) = sidecar.transitions(component)
        assert (revoked.pattern, revoked.before_address) == ("A->null", A.leads(component).address)
        assert revoked.reason is not None
        assert revoked.reason.startswith("the lease was not renewed for 16.")
        assert revoked.reason in transition_line(revoked)
        since = sidecar.component_state(component).since.steady
        assert 16_500_000 <= since - died <= 17_000_000


@pytest.mark.parametrize("duration", [3, 3.0, "PT3S"])
def test_the_duration_is_the_leases_own(duration: object) -> None:
    """`high-availability.kubernetes.leader-election.lease-duration`, in both spellings."""
    flink = Flink(ConfigMaps(duration=duration)).elect(A)
    sidecar = LeaseSidecar(flink)
    sidecar.connects().hears_nothing(3)
    assert patterns(sidecar) == ["?->A"]
    sidecar.hears_nothing(1.5)
    assert patterns(sidecar) == ["?->A", "A->null"]


def test_time_alone_ends_no_lease() -> None:
    """Without a look that succeeded, silence may be ours."""
    _, sidecar = leased()
    sidecar.waits(300)
    assert sidecar.transitions() == []
    sidecar.looks()
    assert patterns(sidecar) == ["A->null"]


def test_blindness_never_ends_a_lease() -> None:
    """The clock begins anew when the view is back: a leader that lives has then time to show it."""
    _, sidecar = leased()
    sidecar.is_cut_off().waits(300).connects()
    assert patterns(sidecar) == ["A->?", "?->A"]
    sidecar.hears_nothing(15)
    assert patterns(sidecar) == ["A->?", "?->A"]
    sidecar.hears_nothing(1.5)
    assert patterns(sidecar) == ["A->?", "?->A", "A->null"]


def test_a_short_blink_puts_the_end_of_a_lease_off() -> None:
    """Within the trust window nothing is reported, and still the clock begins anew."""
    _, sidecar = leased()
    sidecar.hears_nothing(12).is_cut_off().waits(1).connects().hears_nothing(15)
    assert patterns(sidecar) == []
    sidecar.hears_nothing(1.5)
    assert patterns(sidecar) == ["A->null"]


@pytest.mark.parametrize("how", ["blind", "killed", "replaced"])
def test_a_lease_that_has_run_out_stays_so_until_it_is_renewed(how: str) -> None:
    """Neither an outage nor a restart of ours brings a dead leader back, and nobody is notified that all is well. Without the expired lease
    the next sidecar would take it for the leader.
    """
    flink, sidecar = leased()
    sidecar.hears_nothing(60)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    if how == "blind":
        sidecar.is_cut_off().waits(60)
    else:
        (sidecar.is_killed if how == "killed" else sidecar.is_replaced)(down_for=60)
    sidecar.connects().hears_nothing(60)
    assert patterns(sidecar) == ["A->null", *(["null->?"] if how == "blind" else []), "?->null"]
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    sidecar.sees(flink.config_maps.renew())
    assert patterns(sidecar)[-1] == "null->B"


def test_a_leader_that_renews_late_is_the_same_leader_again_each_time() -> None:
    """It lives after all. Each end and each return is a happening of its own."""
    flink, sidecar = leased()
    for _ in range(3):
        sidecar.hears_nothing(18).sees(flink.config_maps.renew())
    assert patterns(sidecar) == ["A->null", "null->B"] * 3
    granted = [t for t in sidecar.transitions(DISPATCHER) if t.kind == "GRANTED"]
    assert {(t.same_leader, t.same_process, t.elections) for t in granted} == {(True, True, 0)}
    assert len({t.id for t in sidecar.transitions()}) == 24


def test_a_leader_that_renewed_late_is_remembered_as_such() -> None:
    """Its next end is another happening than its first, also when an outage of ours lies between."""
    flink, sidecar = leased()
    for _ in range(2):
        sidecar.hears_nothing(18).sees(flink.config_maps.renew()).is_cut_off().waits(10).connects()
    revoked = [t.id for t in sidecar.transitions(DISPATCHER) if t.kind == "REVOKED"]
    assert len(set(revoked)) == len(revoked) == 2


def test_a_term_that_goes_on_may_end_all_the_same() -> None:
    """A leader that renewed late, and is lost later on: two episodes, each reported."""
    flink, sidecar = leased()
    sidecar.hears_nothing(18)
    sidecar.sees(flink.config_maps.renew()).watches(20).sees(flink.elect(B)).watches(20)
    late, lost = sidecar.episodes()
    assert (late.cause, lost.cause) == ("lease_renewal_failed", "jobmanager_lost")
    assert late.id != lost.id
    assert not lost.vacant_seconds  # the vacancy was the other one


# -- another term ------------------------------------------------------------------------------------------------------


def test_another_holder_with_the_old_addresses_is_not_yet_a_leader() -> None:
    """A takeover, as Flink does it: the lease, then the old addresses one by one, then its own; the job's is overwritten in place."""
    flink, sidecar = leased()
    sidecar.sees(flink.grant(B))
    assert {patterns(sidecar, component)[0] for component in ALL_FOUR} == {"A->null"}
    assert reasons(sidecar) == {"another holder, the old address still there"}
    for component in CLUSTER_COMPONENTS:
        sidecar.sees(flink.vacate(component))
    sidecar.sees(flink.config_maps.renew())
    assert len(sidecar.transitions()) == 4
    for component in ALL_FOUR:
        sidecar.sees(flink.publish_all(B, component))
        assert patterns(sidecar, component) == ["A->null", "null->B"]
    granted = [t for t in sidecar.transitions() if t.kind == "GRANTED"]
    assert {(t.same_process, t.elections, t.unobserved) for t in granted} == {(False, 1, 0)}
    assert {t.position.holder_identity for t in granted if t.position} == {"jvm jm-b"}


def test_keys_that_are_removed_one_by_one_are_revoked_one_by_one() -> None:
    """SIGTERM: the keys, the release, and 4 ms later the dying process takes the lease again. No more is said until the next leader."""
    flink, sidecar = leased()
    order = [REST_SERVER, THE_JOB, DISPATCHER, RESOURCE_MANAGER]
    for component in order:
        sidecar.sees(flink.vacate(component))
    sidecar.sees(flink.config_maps.release()).sees(flink.grant(A)).hears_nothing(24)
    assert [(t.component, t.pattern) for t in sidecar.transitions()] == [(c.component, "A->null") for c in order]
    assert reasons(sidecar) == {"the address was removed"}
    sidecar.sees(flink.elect(B))
    assert patterns(sidecar) == ["A->null", "null->B"]


def test_a_lease_that_is_released_is_nobodys() -> None:
    """After an outage a leader gives up, takes the lease again and leads in a new session: A->null->B, and it is the same process."""
    flink, sidecar = leased()
    sidecar.sees(flink.config_maps.release())
    assert reasons(sidecar) == {"the lease was released"}
    sidecar.sees(flink.grant(A))
    assert patterns(sidecar) == ["A->null"]
    sidecar.sees(flink.publish_all(A_AGAIN))
    assert patterns(sidecar) == ["A->null", "null->B"]
    assert sidecar.transitions(DISPATCHER)[-1].same_process is True
    sidecar.watches(10)
    assert [episode.cause for episode in sidecar.episodes()] == ["lease_renewal_failed"]


def test_the_same_holder_that_takes_the_lease_anew_does_not_lead_with_what_it_wrote_before() -> None:
    """A new term, whoever's: seen without the release between."""
    flink, sidecar = leased()
    sidecar.sees(flink.grant(A))
    assert reasons(sidecar) == {"the same holder took the lease anew, the old address still there"}


def test_a_new_session_in_the_same_term_is_a_change() -> None:
    """1.14: the leader gave up and led again without losing its lock. Another address in one session is the same leader elsewhere."""
    flink, sidecar = leased()
    sidecar.sees(flink.publish_all(A_AGAIN, DISPATCHER))
    sidecar.sees(flink.publish(DISPATCHER, replace(A_AGAIN.leads(DISPATCHER), address="elsewhere")))
    assert patterns(sidecar) == ["A->B", "A->A'"]
    assert {t.same_process for t in sidecar.transitions(DISPATCHER)} == {True}


@pytest.mark.parametrize("how", ["blind", "killed"])
def test_a_takeover_out_of_sight_leaves_the_old_addresses_to_nobody(how: str) -> None:
    """What was written in an earlier term is remembered to be so, through an outage and through a restart."""
    flink, sidecar = leased()
    if how == "blind":
        sidecar.is_cut_off().waits(10)
    else:
        sidecar.is_killed(down_for=10)
    flink.grant(B)
    sidecar.connects()
    for component in ALL_FOUR:
        assert patterns(sidecar, component)[-1] == "?->null"
    assert reasons(sidecar) == {"another holder, the old address still there"}
    sidecar.sees(flink.publish_all(B))
    assert patterns(sidecar)[-1] == "null->B"


# -- at first sight ----------------------------------------------------------------------------------------------------


def test_nobody_leads_without_an_annotation_a_holder_or_a_value() -> None:
    """Each alone is not enough: a ConfigMap begins with the lease, and may end with the values."""
    for flink in (Flink(ConfigMaps()), Flink(ConfigMaps()).grant(A), Flink(ConfigMaps()).elect(A)):
        if ONE in flink.config_maps and flink.config_maps[ONE].data:
            flink.config_maps[ONE].lease = None
        sidecar = LeaseSidecar(flink)
        sidecar.connects()
        assert {t.pattern for t in sidecar.transitions()} == {"?->null"}


def test_a_fresh_cluster_grants_its_first_leaders() -> None:
    """The lease, then the values, one after the other: partial states are normal."""
    flink = Flink(ConfigMaps())
    sidecar = LeaseSidecar(flink)
    sidecar.connects().sees(flink.grant(A))
    for component in CLUSTER_COMPONENTS:
        sidecar.sees(flink.publish_all(A, component))
    assert [(t.component, t.pattern) for t in sidecar.transitions()[3:]] == [
        (component.component, "null->B") for component in CLUSTER_COMPONENTS
    ]


def test_a_job_that_an_earlier_leader_has_left_is_led_by_nobody() -> None:
    """Its value stays until somebody overwrites it: at first sight the session decides, which since 1.15 is one for all of a leader."""
    flink = Flink(ConfigMaps()).grant(B).submit().publish_all(B).publish_all(A, THE_JOB)
    sidecar = LeaseSidecar(flink)
    sidecar.connects()
    assert patterns(sidecar) == ["?->A"]
    assert [(t.pattern, t.reason) for t in sidecar.transitions(THE_JOB)] == [("?->null", "left by an earlier leader")]
    sidecar.sees(flink.publish_all(B, THE_JOB))
    assert patterns(sidecar, THE_JOB) == ["?->null", "null->B"]


def test_up_to_1_14_each_component_has_a_session_of_its_own() -> None:
    """Another session says nothing of a job there, and another holder neither: leaders may be split between JobManagers."""
    flink = Flink(ConfigMaps(ConfigMapLayout.K1)).grant(A).submit().publish_all(A).elect(B, THE_JOB)
    sidecar = LeaseSidecar(flink)
    sidecar.connects()
    assert {t.pattern for t in sidecar.transitions()} == {"?->A"}
    sidecar.watches(30, *CLUSTER_COMPONENTS).looks()
    sidecar.watches(10, *CLUSTER_COMPONENTS)  # recorded once no failover can claim it any more
    assert [(t.component, t.pattern) for t in sidecar.transitions()[4:]] == [("job", "A->null")]


def test_a_dead_cluster_is_held_until_its_lease_is_seen_to_run_out() -> None:
    """At first sight nothing distinguishes a dead leader from a living one: no clock of others is trusted."""
    sidecar = LeaseSidecar(Flink(ConfigMaps()).elect(A))
    sidecar.connects().hears_nothing(18)
    assert patterns(sidecar) == ["?->A", "A->null"]


# -- whatever comes ----------------------------------------------------------------------------------------------------

BEATS = st.lists(
    st.tuples(st.sampled_from(["renewal", "look", "wait", "blink", "outage"]), st.integers(0, 14)), max_size=40
)


@settings(max_examples=examples(300))
@given(st.sampled_from(ConfigMapLayout), BEATS)
def test_no_vacancy_is_derived_while_the_lease_is_renewed(era: ConfigMapLayout, beats: list[tuple[str, int]]) -> None:
    """Renewals that are seen no more than the lease's duration apart, however else we look, wait, or cannot see: the leader leads. What
    was recorded rests on our own sight alone.
    """
    flink, sidecar = leased(era=era)
    due = sidecar.now + 15 * SECOND
    for beat, seconds in beats:
        if beat in {"blink", "outage"}:
            sidecar.is_cut_off().waits(1 if beat == "blink" else 10 * seconds, tick=1).connects()
            due = sidecar.now + 15 * SECOND
        elif beat == "renewal" or sidecar.now + seconds * SECOND > due:
            sidecar.sees(flink.config_maps.renew())
            due = sidecar.now + 15 * SECOND
        else:
            sidecar.waits(seconds, tick=1)
            if beat == "look":
                sidecar.looks()
    assert {t.pattern for t in sidecar.transitions()} <= {"A->?", "?->A"}
    assert all(t.same_leader for t in sidecar.transitions() if t.pattern == "?->A")
