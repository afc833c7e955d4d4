"""Ids of records: they differ when what happened differs, also in a store whose numbers come again, and are equal for every observer."""

from collections.abc import Callable
from copy import deepcopy

import pytest
from msgspec.structs import replace

from sidecar.core.observations import ChildrenObserved
from sidecar.core.records import AnyRecord, Contention, Coverage, EpisodeRecord, TransitionRecord
from tests.kit.cluster import CLUSTER, DISPATCHER, JobManager, job_manager
from tests.kit.core_sidecar import POLICY, Sidecar, leased
from tests.kit.fake_flink import Flink
from tests.kit.zookeeper_recordings import Tree

OWN_KINDS = {"DISCOVERED", "OBSCURED"}
"""About an observer's own view."""


def is_shared(record: AnyRecord) -> bool:
    """Whether every observer that saw the same records the same."""
    return isinstance(record, EpisodeRecord) or (isinstance(record, TransitionRecord) and record.kind not in OWN_KINDS)


def repeated(*sidecars: Sidecar) -> list[str]:
    """Ids that one sidecar gave to two records."""
    repeated_ids = []
    for sidecar in sidecars:
        ids = [record.id for record in sidecar.records]
        repeated_ids += [record_id for record_id in set(ids) if ids.count(record_id) > 1]
    return repeated_ids


def two_observers(flink: Flink) -> tuple[Sidecar, Sidecar]:
    first = Sidecar(flink, POLICY).connects()
    second = Sidecar(flink, replace(POLICY, observer="sidecar-1")).connects()
    return first, second


def both(sidecars: tuple[Sidecar, Sidecar], act: Callable[[Sidecar], object]) -> None:
    changed = list(sidecars[0].flink.znodes.changed)
    for sidecar in sidecars:
        sidecar.flink.znodes.changed[:] = changed
        act(sidecar)


def sees(sidecar: Sidecar) -> None:
    sidecar.sees_changes().waits(10)


def elected(host: str) -> JobManager:
    return job_manager(host, term=1)


def test_a_wiped_store_repeats_its_numbers_and_no_id() -> None:
    """ZooKeeper counts from the beginning again: each election is still recorded under an id of its own, equal for both observers."""
    flink = Flink().submit()
    sidecars = two_observers(flink)
    for leader in (elected("jm-a"), elected("jm-b"), elected("jm-c")):
        flink.elect(leader)
        both(sidecars, sees)
        flink.vacate()
        both(sidecars, sees)
        flink.znodes.zxid = 100  # the next life of the store
    first, second = sidecars
    assert not repeated(*sidecars)
    assert [t.kind for t in first.transitions()].count("GRANTED") == 12
    assert [r.id for r in first.records if is_shared(r)] == [r.id for r in second.records if is_shared(r)]


def test_a_restored_store_shows_an_old_leader_again_under_new_ids() -> None:
    """A snapshot in which A leads is restored twice: each time its coming and going are happenings of their own."""
    flink = Flink().submit().elect(elected("jm-a"))
    sidecars = two_observers(flink)
    snapshot, zxid = deepcopy(flink.znodes.tree.nodes), flink.znodes.zxid
    for _ in range(2):
        flink.vacate()
        both(sidecars, sees)
        flink.znodes.tree.nodes = deepcopy(snapshot)
        flink.znodes.changed += list(snapshot)
        both(sidecars, sees)
    flink.vacate()
    both(sidecars, sees)
    flink.znodes.zxid = zxid
    flink.elect(elected("jm-b"))
    both(sidecars, sees)
    first, second = sidecars
    assert not repeated(*sidecars)
    assert len(first.episodes()) == 3
    assert [r.id for r in first.records if is_shared(r)] == [r.id for r in second.records if is_shared(r)]


def test_a_store_restored_out_of_sight_shows_an_old_leader_again_under_new_ids() -> None:
    """The same when nobody could see the restore: after blindness, a restart and another leader in between."""
    flink = Flink().submit().elect(elected("jm-a"))
    sidecar = Sidecar(flink, POLICY).connects()
    snapshot = deepcopy(flink.znodes.tree.nodes)
    for leader in (None, elected("jm-b"), elected("jm-c")):
        flink.vacate()
        sees(sidecar)
        if leader:
            flink.elect(leader)
            sees(sidecar)
        sidecar.is_cut_off().waits(10).is_killed(down_for=10)
        flink.znodes.tree = Tree()
        flink.znodes.tree.nodes = deepcopy(snapshot)
        sidecar.connects().waits(10)
    flink.vacate()
    sees(sidecar)
    assert sidecar.kinds(DISPATCHER).count("REVOKED") == 4
    assert not repeated(sidecar)


def test_stretches_that_begin_together_and_end_apart_are_two() -> None:
    """A journal that went back in time records another end for a stretch that it has recorded before."""
    ends = []
    for seconds in (5, 7):
        sidecar = Sidecar(Flink().submit().elect(elected("jm-a"))).connects()
        sidecar.waits(seconds).stops()
        ends.append([r.id for r in sidecar.records if isinstance(r, Coverage)])
    assert ends[0][:-1] == ends[1][:-1]
    assert ends[0][-1] != ends[1][-1]


def test_a_first_look_at_contenders_is_the_observers_own() -> None:
    """After a restart the same contenders are counted anew: that is another record, and a change is the same for every observer."""
    flink = Flink().submit()
    sidecars = two_observers(flink)

    def contend(sidecar: Sidecar, *names: str) -> None:
        sidecar.observe(ChildrenObserved(sidecar.moment, CLUSTER, "/leader/latch", names))

    for sidecar in sidecars:
        contend(sidecar, "a", "b")
        sidecar.is_killed()
        sidecar.reconnects()
        contend(sidecar, "a", "b")
        contend(sidecar, "a")
    counted = [[r for r in sidecar.records if isinstance(r, Contention)] for sidecar in sidecars]
    assert not repeated(*sidecars)
    assert counted[0][-1].id == counted[1][-1].id
    assert not {r.id for r in counted[0][:-1]} & {r.id for r in counted[1][:-1]}


@pytest.mark.parametrize("away", ["cut off", "killed"])
def test_a_lease_that_runs_out_again_after_a_blind_renewal_is_another_happening(away: str) -> None:
    """Its renewal was not seen: that its term ran out a second time is recorded, under an id of its own."""
    flink, sidecar = leased()
    for _ in range(2):
        sidecar.hears_nothing(17)
        if away == "cut off":
            sidecar.is_cut_off().waits(10)
        else:
            sidecar.is_killed(down_for=10)
        flink.config_maps.renew()
        sidecar.connects().watches(15)
    assert sidecar.kinds(DISPATCHER).count("REVOKED") == 2
    assert not repeated(sidecar)
