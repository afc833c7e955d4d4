"""The account of a cluster's leadership: every microsecond counts once, and as the audit's records say."""

from datetime import datetime
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.leadership.leadership_account import Account, Lasted, Standing, totals
from sidecar.core.leadership.leadership_machine import final_until
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeploymentObserved, ViewConfirmed
from sidecar.core.records import AnyRecord, Coverage, TransitionRecord
from sidecar.core.state import State
from tests.kit.cluster import ALL_FOUR, CLUSTER, DISPATCHER, REST_SERVER, THE_JOB, A, B
from tests.kit.core_sidecar import Sidecar, watching
from tests.kit.fake_flink import Flink
from tests.kit.groups import examples


class Jumping(Sidecar):
    """A sidecar whose wall clock may jump."""

    ahead = 0

    @property
    def moment(self) -> Moment:
        return Moment(self.now, max(0, self.now + self.ahead))


def account_of(sidecar: Sidecar) -> Account:
    account = sidecar.state.clusters[CLUSTER].account
    assert account
    return account


def totals_of(sidecar: Sidecar) -> Lasted:
    """The totals of now."""
    return totals(account_of(sidecar), sidecar.now)


def suspended(sidecar: Sidecar, *, suspended: bool) -> None:
    """The cluster's FlinkDeployment is suspended, or resumed."""
    generation = 2 + suspended
    deployment = FlinkDeployment("u", generation, generation, Reconciliation.DEPLOYED, suspended=suspended)
    sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, deployment))


def act(name: str, flink: Flink, sidecar: Sidecar, seconds: int) -> None:
    """One thing that can happen, and then time passes."""
    match name:
        case "vacate" | "vacate one":
            sidecar.sees(flink.vacate(*(ALL_FOUR if name == "vacate" else (REST_SERVER,))))
        case "elect":
            sidecar.sees(flink.elect(B if seconds % 2 else A))
        case "cut off":
            sidecar.is_cut_off()
        case "connect":
            sidecar.connects()
        case "confirm":
            sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 5 * SECOND))
        case "kill":
            sidecar.is_killed(seconds)
        case "refuse":
            sidecar.is_refused(flink.znodes.path(DISPATCHER))
        case "suspend" | "resume":
            suspended(sidecar, suspended=name == "suspend")
        case "jump" if isinstance(sidecar, Jumping):
            sidecar.ahead += (seconds - 100) * 60 * SECOND
    sidecar.waits(seconds, tick=max(1, seconds / 20))


ACTS = ("vacate", "vacate one", "elect", "cut off", "connect", "confirm", "kill", "refuse", "suspend", "resume")


def histories(*names: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 200)), max_size=25)


@settings(max_examples=examples(200), deadline=None)
@given(histories(*ACTS, "jump"))
def test_every_microsecond_counts_once_whatever_happens(history: list[tuple[str, int]]) -> None:
    """Led, vacant, suspended and unobserved time are the time that has passed, through restarts and jumps of the clock."""
    flink = Flink().submit().elect(A)
    sidecar = Jumping(flink)
    began = sidecar.now
    sidecar.connects().waits(5)
    for name, seconds in history:
        act(name, flink, sidecar, seconds)
        counted = totals_of(sidecar)
        assert sum(getattr(counted, part) for part in counted.__struct_fields__) == sidecar.now - began


@settings(max_examples=examples(200), deadline=None)
@given(histories(*ACTS))
def test_the_account_says_what_the_records_say(history: list[tuple[str, int]]) -> None:
    """The audit has transitions and coverage alone: both come to the same microseconds."""
    flink = Flink().submit().elect(A)
    sidecar = Sidecar(flink)
    began = sidecar.now
    sidecar.connects().waits(5)
    for name, seconds in history:
        act(name, flink, sidecar, seconds)
    sidecar.stops()
    assert totals_of(sidecar) == of_records(sidecar.records, began, sidecar.now)


@settings(max_examples=examples(100), deadline=None)
@given(histories(*ACTS))
def test_what_is_exposed_never_goes_back(history: list[tuple[str, int]]) -> None:
    """Counters of Prometheus that go back look like a restart, and the whole of them would count again."""
    flink = Flink().submit().elect(A)
    sidecar = Sidecar(flink)
    sidecar.connects().waits(5)
    before = Lasted()
    for name, seconds in history:
        act(name, flink, sidecar, seconds)
        now = exposed(sidecar.state, sidecar.moment)
        assert all(getattr(now, part) >= getattr(before, part) for part in before.__struct_fields__)
        before = now


def exposed(state: State, at: Moment) -> Lasted:
    cluster = state.clusters[CLUSTER]
    assert cluster.account
    return totals(cluster.account, final_until(cluster, state.alive, at))


def of_records(records: list[AnyRecord], began: int, until: int) -> Lasted:
    """What the records say, edge by edge."""
    seeing = [
        (micros(r.began_at), micros(r.ended_at)) for r in records if isinstance(r, Coverage) and r.state == "seeing"
    ]
    unwanted = [(micros(r.began_at), micros(r.ended_at)) for r in records if isinstance(r, Coverage) and r.suspended]
    changes: dict[str, list[tuple[int, str]]] = {}
    for record in records:
        is_known = isinstance(record, TransitionRecord) and (
            record.kind != "OBSCURED" or record.connection == "CONNECTED"
        )
        if is_known and isinstance(record, TransitionRecord) and record.job_id is None:
            state = "?" if record.kind == "OBSCURED" else "led" if record.after_session_id else "vacant"
            changes.setdefault(record.component, []).append((micros(record.observed_at), state))
    edges = {
        began,
        until,
        *(t for pair in (*seeing, *unwanted) for t in pair),
        *(t for c in changes.values() for t, _ in c),
    }
    sums = Lasted()
    times = sorted(edge for edge in edges if began <= edge <= until)
    for since, ended in pairwise(times):
        states = [next((s for t, s in reversed(history) if t <= since), "?") for history in changes.values()]
        if not any(a <= since < b for a, b in seeing):
            standing = Standing.UNOBSERVED
        elif "vacant" in states:
            standing = Standing.SUSPENDED if any(a <= since < b for a, b in unwanted) else Standing.VACANT
        else:
            is_led = states == ["led"] * len(CLUSTER_COMPONENTS)
            standing = Standing.LED if is_led else Standing.UNOBSERVED
        sums = sums.plus(standing, ended - since)
    return sums


def micros(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round(moment.timestamp() * SECOND)


def test_a_vacancy_of_one_component_is_bad_and_one_of_a_job_is_not() -> None:
    """Dispatcher, resource manager and REST server have to be led together."""
    flink, sidecar = watching()
    before = totals_of(sidecar)
    sidecar.sees(flink.vacate(THE_JOB)).waits(10)
    assert totals_of(sidecar).vacant == before.vacant
    sidecar.sees(flink.vacate(REST_SERVER)).waits(10)
    assert totals_of(sidecar).vacant - before.vacant == 10 * SECOND + 1000


def test_time_without_this_sidecar_is_unobserved() -> None:
    """Not the time until it was last known to run."""
    _, sidecar = watching()
    before, alive = totals_of(sidecar), sidecar.state.alive
    assert alive
    sidecar.is_killed(3600).connects().waits(60)
    after = totals_of(sidecar)
    assert after.unobserved - before.unobserved >= 3600 * SECOND
    assert after.vacant == before.vacant
    assert after.led >= before.led - (60 * SECOND)


def test_a_view_that_was_stale_was_blind_since_it_was_last_confirmed() -> None:
    """Also the vacancy that it saw since then is not known to have lasted."""
    flink, sidecar = watching()
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 5 * SECOND))
    confirmed_at, before = sidecar.now - 1000, totals_of(sidecar)
    sidecar.waits(4).sees(flink.vacate(*ALL_FOUR)).waits(20)
    after = totals_of(sidecar)
    assert after.vacant == before.vacant
    assert after.unobserved - before.unobserved == sidecar.now - confirmed_at


def test_a_stale_view_takes_back_also_what_was_led_before_it_became_unreadable() -> None:
    """Unreadable and blind are both unobserved, but not since the same time."""
    flink, sidecar = watching()
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, 5 * SECOND))
    confirmed_at = sidecar.now - 1000
    before = totals(account_of(sidecar), confirmed_at)
    sidecar.waits(4)
    sidecar.is_refused(flink.znodes.path(DISPATCHER))
    sidecar.waits(20)
    after = totals_of(sidecar)
    assert after.led == before.led
    assert after.unobserved - before.unobserved == sidecar.now - confirmed_at


def test_the_account_changes_only_with_the_standing() -> None:
    """Time that passes is no row of the journal."""
    _, sidecar = watching()
    before = account_of(sidecar)
    sidecar.waits(3 * 3600, tick=30)
    assert account_of(sidecar) is before


def test_the_next_sidecar_counts_anew() -> None:
    """From when its predecessor was last known to run, as a counter of Prometheus does after a restart."""
    _, sidecar = watching()
    sidecar.waits(3600, tick=30).stops()
    sidecar.is_replaced(60).connects().waits(10)
    counted = totals_of(sidecar)
    assert counted.led <= 70 * SECOND
    assert counted.unobserved >= 60 * SECOND
