"""How old our view is: nothing that has to last is decided on a view that nobody has confirmed."""

from sidecar.core.moment import SECOND
from sidecar.core.observations import ConnectionState, ViewConfirmed
from sidecar.core.views.snapshot import Snapshot
from tests.kit.cluster import CLUSTER, DISPATCHER
from tests.kit.core_sidecar import Sidecar, watching

INTERVAL = 1 * SECOND
"""How often this driver confirms."""


def confirmed(sidecar: Sidecar, seconds_ago: float = 0) -> None:
    """The driver confirms what it saw so long ago."""
    at = sidecar.moment
    sidecar.observe(ViewConfirmed(type(at)(at.steady - round(seconds_ago * SECOND), at.wall), CLUSTER, INTERVAL))


def sees_for(sidecar: Sidecar, seconds: int) -> None:
    """Time passes, and the driver confirms each second."""
    for _ in range(seconds):
        sidecar.waits(1)
        confirmed(sidecar)


def is_ready(sidecar: Sidecar) -> bool:
    return Snapshot(sidecar.moment, sidecar.state).ready


def test_a_vacancy_that_is_confirmed_all_the_time_is_notified_in_time() -> None:
    """With a confirmation each second, a vacancy of 30 s fires as it does without any."""
    flink, sidecar = watching()
    confirmed(sidecar)
    sidecar.sees(flink.vacate(DISPATCHER))
    sees_for(sidecar, 31)
    sidecar.waits(6)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]


def test_a_vacancy_in_a_view_that_nobody_confirms_is_not_notified() -> None:
    """The store went silent behind a deletion, whatever else still trickles in: no vacancy fires, and the sidecar is not ready."""
    flink, sidecar = watching()
    confirmed(sidecar)
    sidecar.sees(flink.vacate(DISPATCHER))
    for _ in range(120):
        sidecar.waits(1)
        sidecar.reads(flink.znodes.path(DISPATCHER))  # something that says nothing new
    assert sidecar.sent_reasons() == []
    assert not is_ready(sidecar)


def test_confirmations_that_are_ever_later_are_no_fresh_view() -> None:
    """A backlog that grows: each confirmation is of a moment longer ago, and nothing that lasts is decided by the time on our clock."""
    flink, sidecar = watching()
    confirmed(sidecar)
    sidecar.sees(flink.vacate(DISPATCHER))
    for second in range(1, 60):
        sidecar.waits(1)
        confirmed(sidecar, seconds_ago=second * 0.9)
    assert sidecar.sent_reasons() == []
    assert not is_ready(sidecar)


def test_a_view_that_is_confirmed_again_goes_on_where_it_was() -> None:
    """A leader that was away for a moment of that time is no vacancy; one that is still away is, as soon as that is confirmed."""
    flink, sidecar = watching()
    confirmed(sidecar)
    sidecar.sees(flink.vacate(DISPATCHER)).waits(40)
    assert not is_ready(sidecar)
    confirmed(sidecar)
    sidecar.waits(0.25)
    assert is_ready(sidecar)
    sees_for(sidecar, 6)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    assert [t.kind for t in sidecar.transitions()] == ["REVOKED"]


def test_a_stale_view_is_recorded_as_blindness_from_its_last_confirmation_on() -> None:
    """What could not be seen is a record: from the last confirmation to the next one."""
    _, sidecar = watching()
    confirmed(sidecar)
    last = sidecar.now - 1000
    sidecar.waits(20)
    confirmed(sidecar)
    sidecar.waits(1)
    seeing, blind = sidecar.coverage()
    assert (seeing.state, blind.state) == ("seeing", "blind")
    assert seeing.ended_at == blind.began_at
    assert sidecar.state.clusters[CLUSTER].view.since.steady - last >= 20 * SECOND


def test_a_connection_that_is_cut_when_the_view_was_stale_is_trusted_no_longer() -> None:
    """The trust window counts from the last confirmation, not from when somebody noticed."""
    _, sidecar = watching()
    confirmed(sidecar)
    sidecar.waits(10).is_cut_off(ConnectionState.SUSPENDED).waits(0.25)
    assert {t.pattern for t in sidecar.transitions()} == {"A->?"}


def test_a_confirmation_writes_nothing_to_disk() -> None:
    """Once a second, for years: it is no row of the journal."""
    from sidecar.core.journal_rows import changes

    _, sidecar = watching()
    confirmed(sidecar)
    sidecar.waits(0.25)
    before = sidecar.state
    confirmed(sidecar)
    sidecar.waits(0.25)
    assert list(changes(before, sidecar.state)) == []
