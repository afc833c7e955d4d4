"""Whatever really happens in ZooKeeper, however much of it is missed: in the end the sidecar knows what is there."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.captures import CaptureOutcome, EvidenceItem, EvidenceKind
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, ComponentId, LeaderInformation, decode_connection_info
from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.core.observations import ConnectionState, EvidenceGathered, Observation
from sidecar.core.policy.policy import Source
from sidecar.core.step import Step
from tests.kit.cluster import ALL_FOUR, CLUSTER, JOB, THE_JOB, JobManager, job_manager
from tests.kit.core_sidecar import POLICY, Sidecar
from tests.kit.core_witness import UNKNOWN, VACANT, Sights, Witness, sights
from tests.kit.fake_flink import Flink
from tests.kit.groups import examples
from tests.kit.znodes import ZNodes

ITEM = EvidenceItem(EvidenceKind.JOB, JOB, CaptureOutcome.CAPTURED, "restored from checkpoint 1")
JOB_MANAGERS = [job_manager(host, term) for host in ("jm-a", "jm-b") for term in (0, 1)]


class Witnessed(Sidecar):
    """A sidecar whose every step is checked, and whose driver reads only while it is connected."""

    def __init__(self, flink: Flink) -> None:
        self._witness = Witness(consistent=True)
        super().__init__(flink, replace(POLICY, evidence=frozenset(Source), session_timeouts={CLUSTER: 20_000_000}))

    @property
    def connected(self) -> bool:
        return self.state.clusters[CLUSTER].view.connection is ConnectionState.CONNECTED

    def _after(self, observation: Observation) -> Step:
        return self._witness.step(self.policy, self.state, observation)


Event = Callable[[Flink, Witnessed], object]

components = st.sets(st.sampled_from(ALL_FOUR), min_size=1).map(sorted)


def runs(flink: Flink) -> bool:
    """Whether the job is in the job store: Flink puts it there before anybody leads it."""
    return f"{flink.znodes.job_store}/{JOB}" in flink.znodes.tree.nodes


def elected(leader: JobManager, which: list[ComponentId]) -> Event:
    def happens(flink: Flink, _: Witnessed) -> None:
        for component in which:
            if component != THE_JOB or runs(flink):
                flink.elect(leader, component)

    return happens


def vacated(which: list[ComponentId]) -> Event:
    return lambda flink, _: flink.vacate(*which)


def written(component: ComponentId, data: bytes) -> Event:
    return lambda flink, _: (
        flink.znodes.write(flink.znodes.path(component), data, 7) if component != THE_JOB or runs(flink) else None
    )


def submitted(flink: Flink, _: Witnessed) -> None:
    flink.submit()


def ended(flink: Flink, _: Witnessed) -> None:
    flink.vacate(THE_JOB).forget()


def upgraded(era: ZNodeLayout) -> Event:
    def happens(flink: Flink, _: Witnessed) -> None:
        running = runs(flink)
        flink.vacate().forget()
        flink.znodes.era = era
        if (
            era is ZNodeLayout.Z2
        ):  # 1.14 is known by contenders that it has for each component; here nobody contends, and no newer version did
            flink.znodes.delete("/leader/latch")
        if running:
            flink.submit()

    return happens


def sees_changes(_: Flink, sidecar: Witnessed) -> None:
    if sidecar.connected:
        sidecar.sees_changes()


def read(component: ComponentId) -> Event:
    return lambda flink, sidecar: sidecar.reads(flink.znodes.path(component)) if sidecar.connected else None


def cut_off(connection: ConnectionState) -> Event:
    return lambda _, sidecar: sidecar.is_cut_off(connection)


def connected(_: Flink, sidecar: Witnessed) -> None:
    sidecar.connects()


def waited(seconds: float) -> Event:
    return lambda _, sidecar: sidecar.waits(seconds, tick=max(0.5, seconds / 20))


def killed(_: Flink, sidecar: Witnessed) -> None:
    sidecar.is_killed(down_for=10)


def brought(which: int, pieces: int) -> Event:
    """Evidence that was asked for, in whatever order, and however often."""

    def happens(_: Flink, sidecar: Witnessed) -> None:
        for capture in sidecar.asked[which : which + 1]:
            sidecar.observe(EvidenceGathered(sidecar.moment, capture.id, (ITEM,) * pieces))

    return happens


def shown(event: Event) -> Event:
    def happens(flink: Flink, sidecar: Witnessed) -> None:
        event(flink, sidecar)
        sees_changes(flink, sidecar)

    return happens


IN_FLINK: st.SearchStrategy[Event] = st.one_of(
    st.builds(elected, st.sampled_from(JOB_MANAGERS), components),
    st.builds(vacated, components),
    st.builds(written, st.sampled_from(ALL_FOUR), st.sampled_from([b"", b"garbage"])),
    st.just(submitted),
    st.just(ended),
    st.builds(upgraded, st.sampled_from(ZNodeLayout)),
)
TO_US: st.SearchStrategy[Event] = st.one_of(
    st.just(sees_changes),
    st.builds(read, st.sampled_from(ALL_FOUR)),
    st.builds(cut_off, st.sampled_from([ConnectionState.SUSPENDED, ConnectionState.LOST])),
    st.just(connected),
    st.builds(waited, st.sampled_from([0.5, 2, 5, 40])),
    st.just(killed),
    st.builds(brought, st.integers(-2, 1), st.integers(0, 2)),
)
EVENTS = st.one_of(IN_FLINK, IN_FLINK.map(shown), TO_US)


def truth(flink: Flink) -> Sights:
    """What stands in ZooKeeper."""
    leaders: Sights = {}
    for component in ALL_FOUR if runs(flink) else CLUSTER_COMPONENTS:
        node = flink.znodes.tree.nodes.get(flink.znodes.path(component))
        leader = decode_connection_info(node.data) if node and node.data else None
        match leader:
            case None:
                leaders[component] = VACANT
            case LeaderInformation(address, session_id):
                leaders[component] = ("A", str(session_id), address)
            case _:
                leaders[component] = UNKNOWN
    return leaders


@settings(max_examples=examples(400))
@given(st.sampled_from(ZNodeLayout), st.lists(EVENTS, min_size=20, max_size=40))
def test_after_a_complete_look_the_sidecar_knows_what_is_there(era: ZNodeLayout, events: list[Event]) -> None:
    """Elections, crashes, jobs, upgrades, tampering, outages, kills of the sidecar: every id is used once, every chain of transitions is
    whole, and a complete look makes good whatever was missed.
    """
    flink = Flink(ZNodes(era))
    sidecar = Witnessed(flink)
    for event in (connected, *events, connected):
        event(flink, sidecar)
    actual = sights(sidecar.state)
    if (
        not runs(flink) and actual.get(THE_JOB) == VACANT
    ):  # its leader was seen, its graph never was: it might still be recovered
        assert sidecar.component_state(THE_JOB).registered is None
        del actual[THE_JOB]
    assert actual == truth(flink)
