"""ConfigMaps come and go, jobs with them; elections are counted, and some of what is written nobody can read."""

import pytest
from msgspec.structs import replace

from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Blindness, Held, Unknown
from sidecar.core.journal_rows import changes
from tests.core.leadership.test_leases import A_AGAIN, patterns, reasons
from tests.kit.cluster import ALL_FOUR, CLUSTER, DISPATCHER, JOB, REST_SERVER, THE_JOB, A, B
from tests.kit.config_maps import ONE, ConfigMap, ConfigMaps
from tests.kit.core_sidecar import LeaseSidecar, leased
from tests.kit.fake_flink import Flink

# -- ConfigMaps come and go --------------------------------------------------------------------------------------------


def test_without_its_config_map_nobody_leads() -> None:
    """kubectl delete: the leader dies of it, and takes the lease of a new one while dying, without a value. The job is not in there."""
    flink, sidecar = leased()
    flink.config_maps.delete()
    sidecar.sees_changes()
    assert {patterns(sidecar, component)[0] for component in ALL_FOUR} == {"A->null"}
    assert reasons(sidecar) == {"the ConfigMap is gone"}
    sidecar.sees(flink.grant(A)).hears_nothing(30)
    assert [(t.component, t.pattern) for t in sidecar.transitions()[4:]] == [("job", "null->gone")]


def test_a_config_map_that_was_made_anew_unseen_says_so() -> None:
    """Another uid, and nothing in it."""
    flink, sidecar = leased()
    flink.config_maps.delete()
    sidecar.sees(flink.grant(B))
    assert reasons(sidecar) == {"the ConfigMap was deleted and made anew"}
    assert [t.pattern for t in sidecar.transitions(THE_JOB)] == ["A->gone"]


@pytest.mark.parametrize("how", ["blind", "killed"])
def test_a_config_map_that_went_out_of_sight_is_missed_at_the_next_complete_look(how: str) -> None:
    """Also when the driver does not know of it any more."""
    flink, sidecar = leased()
    if how == "blind":
        sidecar.is_cut_off().waits(1)
    else:
        sidecar.is_killed(down_for=1)
    flink.config_maps.delete()
    sidecar.reconnects()
    sidecar.completes()
    assert patterns(sidecar) == ["A->null" if how == "blind" else "?->null"]


def test_other_config_maps_of_the_cluster_say_nothing() -> None:
    """Checkpoints and the operator's autoscaler, whatever is in them."""
    flink, sidecar = leased()
    for name in (f"{CLUSTER}-{JOB}-config-map", f"autoscaler-{CLUSTER}"):
        flink.config_maps.maps[name] = tampered(flink)
        sidecar.reports(name)
    assert sidecar.records == []


def tampered(flink: Flink) -> ConfigMap:
    return ConfigMap("another", 1, dict.fromkeys(flink.config_maps[ONE].data, "garbage"), flink.config_maps[ONE].lease)


def test_two_clusters_under_one_id_do_not_take_turns() -> None:
    """1.14 and 2.3, both alive: who leads goes on, whichever of them renews."""
    flink, sidecar = leased(era=ConfigMapLayout.K1)
    for _ in range(5):
        flink.config_maps.era = ConfigMapLayout.K3
        sidecar.sees(flink.elect(B))
        flink.config_maps.era = ConfigMapLayout.K1
        sidecar.watches(5)
    assert sidecar.transitions() == []


def test_what_was_read_again_is_not_obscured() -> None:
    """1.14, the view is back and not complete when trust ends: of the dispatcher and the job everything is known."""
    flink, sidecar = leased(era=ConfigMapLayout.K1)
    sidecar.is_cut_off().waits(2)
    sidecar.reconnects()
    sidecar.reports(flink.config_maps.name(DISPATCHER), flink.config_maps.name(THE_JOB))
    sidecar.waits(2)
    assert {(t.component, t.pattern) for t in sidecar.transitions()} == {
        ("resource_manager", "A->?"),
        ("rest_server", "A->?"),
    }


def test_what_happens_to_one_component_is_written_down_for_it_alone() -> None:
    """The ConfigMap is one, the rows are not."""
    flink, sidecar = leased()
    before = sidecar.state
    sidecar.sees(flink.publish_all(A_AGAIN, REST_SERVER))
    assert [row.kind for row in changes(replace(before, alerts=sidecar.state.alerts), sidecar.state)] == [
        "episode",
        "component",
    ]


# -- jobs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ConfigMapLayout)
def test_a_job_that_ends_is_retired(era: ConfigMapLayout) -> None:
    """Its leader goes first, then its graph: as in ZooKeeper."""
    flink, sidecar = leased(era=era)
    sidecar.sees(flink.vacate(THE_JOB)).sees(flink.forget())
    assert [(t.component, t.pattern) for t in sidecar.transitions()] == [("job", "A->null"), ("job", "null->gone")]


def test_a_job_whose_graph_goes_with_its_leader_or_before_is_retired_at_once() -> None:
    """A->gone, and the job is not known any more."""
    for together in (True, False):
        flink, sidecar = leased()
        flink.forget()
        if not together:
            sidecar.sees_changes()
        sidecar.sees(flink.vacate(THE_JOB))
        assert [t.pattern for t in sidecar.transitions()] == ["A->gone"]
        assert THE_JOB not in sidecar.state.clusters[CLUSTER].components


def test_a_job_without_a_leader_that_flink_would_recover_stays_vacant() -> None:
    """Its graph is still there."""
    flink, sidecar = leased()
    sidecar.sees(flink.vacate(THE_JOB)).watches(30)
    assert patterns(sidecar, THE_JOB) == ["A->null"]


def test_a_job_that_comes_back_begins_anew() -> None:
    """The same job id in the same term of the same leader: another run, at another address, under its own ids."""
    flink, sidecar = leased()
    for run in range(3):
        sidecar.sees(flink.vacate(THE_JOB).forget())
        flink.submit()
        flink.publish(
            THE_JOB, replace(A.leads(THE_JOB), address=f"pekko.tcp://flink@jm-a:6123/user/rpc/jobmanager_{run}")
        )
        sidecar.sees_changes()
    assert sidecar.kinds(THE_JOB) == ["RETIRED", "GRANTED"] * 3
    assert len({t.id for t in sidecar.transitions()}) == 6


def test_a_job_that_ended_unseen_and_runs_again_begins_anew() -> None:
    """Nobody led it, its graph is gone, and in the same sight it has a leader: retired, and granted."""
    flink, sidecar = leased(era=ConfigMapLayout.K2)
    sidecar.sees(flink.vacate(THE_JOB)).sees(flink.forget().publish_all(A, THE_JOB))
    assert [t.kind for t in sidecar.transitions(THE_JOB)] == ["REVOKED", "RETIRED", "GRANTED"]
    assert isinstance(sidecar.component_state(THE_JOB).leadership, Held)


def test_a_stale_address_of_a_job_that_has_ended_is_no_job() -> None:
    """Its graph is gone while an earlier leader's address is still there: retired once, and it does not come back."""
    flink, sidecar = leased()
    sidecar.sees(flink.grant(B).publish_all(B, *CLUSTER_COMPONENTS)).sees(flink.forget())
    sidecar.watches(60)
    assert patterns(sidecar, THE_JOB) == ["A->null", "null->gone"]


# -- what is counted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["blind", "killed"])
def test_elections_that_nobody_saw_are_counted_by_the_lease(how: str) -> None:
    """Since 1.18: while we were away B led, and then A again in another session."""
    flink, sidecar = leased()
    if how == "blind":
        sidecar.is_cut_off().waits(60)
    else:
        sidecar.is_killed(down_for=60)
    flink.elect(B).grant(A).publish_all(A_AGAIN)
    sidecar.connects()
    transition = sidecar.transitions(DISPATCHER)[-1]
    assert (transition.pattern, transition.unobserved, transition.elections, transition.same_leader) == (
        "?->A",
        1,
        2,
        False,
    )


def test_up_to_1_17_the_lease_counts_renewals_and_nothing_follows_from_it() -> None:
    """It rises while the holder stays, and falls when it goes: null, before and after a takeover."""
    flink, sidecar = leased(era=ConfigMapLayout.K2)
    sidecar.sees(flink.elect(B)).watches(20).hears_nothing(30)
    transitions = sidecar.transitions(DISPATCHER)
    assert [t.pattern for t in transitions] == ["A->B", "A->null"]
    assert {(t.elections, t.unobserved, t.unobserved_at_least) for t in transitions} == {(None, None, 0)}


def test_every_observer_derives_the_same_ids() -> None:
    """One sees each write, the other all of them together, and neither when the lease ran out."""
    ids = []
    for pause in (0.25, 1.0):
        flink, sidecar = leased()
        sidecar.waits(pause).hears_nothing(30).sees(flink.grant(B))
        for component in ALL_FOUR:
            flink.publish_all(B, component)
            if pause < 1:
                sidecar.sees_changes()
        sidecar.sees_changes()
        ids.append(sorted(t.id for t in sidecar.transitions()))
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 8


def test_a_key_that_is_removed_and_restored_again_and_again_is_reported_each_time() -> None:
    """Somebody tampers, and Flink repairs what is its own: the same leader each time, no two happenings with one id."""
    flink, sidecar = leased()
    for _ in range(3):
        sidecar.sees(flink.vacate(DISPATCHER)).sees(flink.publish_all(A, DISPATCHER))
    assert patterns(sidecar) == ["A->null", "null->B"] * 3
    assert len({t.id for t in sidecar.transitions()}) == 6


# -- what nobody can read ----------------------------------------------------------------------------------------------


def test_an_annotation_that_nobody_can_read_obscures_what_stands_there() -> None:
    """Who holds the lease cannot be seen. When it can, nothing has happened."""
    flink, sidecar = leased()
    intact, flink.config_maps[ONE].lease = flink.config_maps[ONE].lease, {"holderIdentity": 7}
    for _ in range(3):
        sidecar.sees(flink.config_maps.write(ONE))
    assert {t.pattern for t in sidecar.transitions()} == {"A->?"}
    assert len(sidecar.transitions()) == 4
    assert {t.reason for t in sidecar.transitions()} == {"a field of the lease has a value that it never has"}
    assert isinstance(sidecar.component_state(DISPATCHER).leadership, Unknown)
    flink.config_maps[ONE].lease = intact
    sidecar.sees(flink.config_maps.renew())
    transitions = sidecar.transitions()[4:]
    assert {(t.pattern, t.same_leader) for t in transitions} == {("?->A", True)}
    assert len(transitions) == 4


def test_a_lease_first_seen_unreadable_is_known_when_it_can_be_read() -> None:
    """The addresses belong to the term that is found then."""
    flink = Flink(ConfigMaps()).elect(A)
    intact, flink.config_maps[ONE].lease = flink.config_maps[ONE].lease, {"holderIdentity": 7}
    sidecar = LeaseSidecar(flink)
    sidecar.connects()
    assert sidecar.transitions() == []
    flink.config_maps[ONE].lease = intact
    sidecar.sees(flink.config_maps.renew())
    assert patterns(sidecar) == ["?->A"]


def test_a_value_that_nobody_can_read_obscures_its_component_alone() -> None:
    """The others are led as before."""
    flink, sidecar = leased()
    flink.config_maps[ONE].data[flink.config_maps.key(DISPATCHER)] = "garbage,elsewhere"
    sidecar.sees(flink.config_maps.write(ONE)).watches(30)
    (obscured,) = sidecar.transitions()
    assert (obscured.component, obscured.pattern, obscured.reason) == (
        "dispatcher",
        "A->?",
        "the session id is not a UUID",
    )
    path = f"{ONE}/{flink.config_maps.key(DISPATCHER)}"
    assert sidecar.component_state(DISPATCHER).leadership == Unknown(Blindness.UNREADABLE, path)
    sidecar.sees(flink.vacate(DISPATCHER))
    assert patterns(sidecar) == ["A->?", "?->null"]


def test_a_value_that_nobody_can_read_is_nobodys_when_the_lease_has_run_out() -> None:
    """Whatever it says, nobody leads."""
    flink, sidecar = leased()
    flink.config_maps[ONE].data[flink.config_maps.key(DISPATCHER)] = "garbage"
    sidecar.sees(flink.config_maps.write(ONE)).hears_nothing(18)
    assert patterns(sidecar) == ["A->?", "?->null"]


# -- from one version to another ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", ["gracefully", "killed"])
def test_an_upgrade_leaves_the_old_config_maps_behind(stopped: str) -> None:
    """1.14 to 2.3: a leader in the new place counts as soon as the old one's lease has run out, and the old place never again."""
    flink, sidecar = leased(era=ConfigMapLayout.K1)
    if stopped == "gracefully":
        sidecar.sees(flink.vacate(*ALL_FOUR))
    sidecar.hears_nothing(18)
    flink.config_maps.era = ConfigMapLayout.K3
    sidecar.sees(flink.elect(B)).watches(60).looks()
    assert patterns(sidecar) == ["A->null", "null->B"]
    assert isinstance(held := sidecar.component_state(DISPATCHER).leadership, Held)
    assert held.position.path == f"{ONE}/{flink.config_maps.key(DISPATCHER)}"


def test_a_job_key_of_an_older_version_is_no_leader_beside_the_newer_one() -> None:
    """1.18 to 1.20: the key without `job-` stays where it is."""
    flink, sidecar = leased(era=ConfigMapLayout.K2)
    flink.config_maps.era = ConfigMapLayout.K3
    sidecar.sees(flink.elect(B)).watches(20)
    assert patterns(sidecar, THE_JOB) == ["A->B"]
    sidecar.is_killed(down_for=10).connects()
    assert patterns(sidecar, THE_JOB) == ["A->B", "?->A"]
    assert sidecar.transitions(THE_JOB)[-1].same_leader
