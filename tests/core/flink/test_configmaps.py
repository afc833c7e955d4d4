"""ConfigMaps: names and keys of all layouts, and values read without ever raising."""

from collections import Counter
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.flink import configmaps
from sidecar.core.flink.configmaps import LeaderElectionRecord, decode_leader, decode_lease
from sidecar.core.flink.leadership import (
    CLUSTER_COMPONENTS,
    TOO_LONG,
    Component,
    ComponentId,
    LeaderInformation,
    Unreadable,
)
from sidecar.core.moment import SECOND
from tests.kit import configmap_recordings

JOB = "aee3acddb08291f858b6185d087537dd"
RESOURCE_MANAGER, DISPATCHER, REST_SERVER = CLUSTER_COMPONENTS
THE_JOB = ComponentId(Component.JOB, JOB)
LEADER = "org.apache.flink.k8s.leader."
SESSION = "9c500829-948d-4512-9719-33d6a98b41ff"
ONE = "demo-cluster-config-map"

# -- layouts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "places"),
    [
        (REST_SERVER, [("demo-restserver-leader", "address"), (ONE, f"{LEADER}restserver")]),
        (RESOURCE_MANAGER, [("demo-resourcemanager-leader", "address"), (ONE, f"{LEADER}resourcemanager")]),
        (DISPATCHER, [("demo-dispatcher-leader", "address"), (ONE, f"{LEADER}dispatcher")]),
        (THE_JOB, [(f"demo-{JOB}-jobmanager-leader", "address"), (ONE, f"{LEADER}{JOB}"), (ONE, f"{LEADER}job-{JOB}")]),
    ],
)
def test_each_component_has_its_places(component: ComponentId, places: list[tuple[str, str]]) -> None:
    """Where a leader may stand, from 1.12 to 2.3, and back from there to whose leader it is."""
    assert list(configmaps.places("demo", component)) == places
    for name, key in places:
        data = {key: f"{SESSION},a"} if name == ONE else {"address": "a", "sessionId": SESSION}
        assert configmaps.values("demo", name, data) == {key: (component, f"{SESSION},a")}
        assert configmaps.is_leaders("demo", name)


@pytest.mark.parametrize(
    ("name", "key", "flink"),
    [
        ("demo-dispatcher-leader", "address", "1.14 or older"),
        (f"demo-{JOB}-jobmanager-leader", "address", "1.14 or older"),
        (ONE, f"{LEADER}{JOB}", "1.15 - 1.18"),
        (ONE, f"{LEADER}job-{JOB}", "1.19 or newer"),
        (ONE, f"{LEADER}dispatcher", None),
    ],
)
def test_a_place_shows_the_version_where_only_one_layout_has_it(name: str, key: str, flink: str | None) -> None:
    """The cluster components stand where they do since 1.15: that shows nothing."""
    assert configmaps.layout_of("demo", name, key) == flink


@pytest.mark.parametrize(
    "name",
    [
        f"demo-{JOB}-config-map",
        "autoscaler-demo",
        "demo",
        "flink-config-demo",
        "other-cluster-config-map",
        "other-demo-dispatcher-leader",
        "demo-2-cluster-config-map",
        "demo-2-dispatcher-leader",
        "demo-jobmanager-leader",
        f"demo-{JOB.upper()}-jobmanager-leader",
    ],
)
def test_other_config_maps_hold_no_leaders(name: str) -> None:
    """A job's checkpoints, the operator's own, other clusters whose ids begin or end alike."""
    assert not configmaps.is_leaders("demo", name)
    assert configmaps.values("demo", name, {f"{LEADER}dispatcher": "x,y", "address": "y", "sessionId": "x"}) == {}


@pytest.mark.parametrize("key", ["checkpointID-0000000000000000001", "counter", f"{LEADER}other", LEADER, "dispatcher"])
def test_other_keys_hold_no_leaders(key: str) -> None:
    """In the cluster's ConfigMap too."""
    assert configmaps.values("demo", ONE, {key: f"{SESSION},a"}) == {}


def test_an_empty_value_is_none() -> None:
    """As a key that is not there."""
    assert configmaps.values("demo", ONE, {f"{LEADER}dispatcher": ""}) == {}
    assert configmaps.values("demo", "demo-dispatcher-leader", {"address": "", "sessionId": ""}) == {}
    assert configmaps.values("demo", "demo-dispatcher-leader", {}) == {}


def test_of_the_data_only_leaders_and_the_names_of_jobs_are_reported() -> None:
    """Job graphs are large and nobody's business; checkpoints do not matter at all."""
    leaders = {f"{LEADER}dispatcher": "a value", f"{LEADER}job-{JOB}": "another", "address": "a", "sessionId": "b"}
    jobs = {f"jobGraph-{JOB}": "x", f"executionPlan-{JOB}": "x", f"runningJobsRegistry-{JOB}": "RUNNING"}
    others = {"counter": "1", "checkpointID-0000000000000000001": "x", "jobGraph-": "x", "application-1": "x"}
    assert configmaps.relevant(leaders | jobs | others) == leaders | dict.fromkeys(jobs, "")
    assert configmaps.job_ids(jobs) == {JOB}


def test_of_a_value_that_is_too_long_no_more_is_kept_than_shows_it() -> None:
    """A ConfigMap of 1 MiB costs memory once, not once more for each key, observation and cluster."""
    kept = configmaps.relevant({f"{LEADER}dispatcher": f"{SESSION},{'a' * 500_000}", "address": "b" * 500_000})
    assert sum(map(len, kept.values())) < 2_200
    assert decode_leader(kept[f"{LEADER}dispatcher"]) == TOO_LONG
    assert decode_leader(f"{SESSION},{kept['address']}") == TOO_LONG


# -- leaders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["pekko.tcp://flink@127.0.0.1:16121/user/rpc/dispatcher_1", "http://127.0.0.1:18081", "a,b,c", " ", "ä𝄞"]
)
def test_a_leader_is_a_session_id_and_an_address(address: str) -> None:
    """Split at the first comma, whatever else the address has."""
    assert decode_leader(f"{SESSION},{address}") == LeaderInformation(address, UUID(SESSION))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "no comma between a session id and an address"),
        (SESSION, "no comma between a session id and an address"),
        (f"{SESSION},", "no address behind the session id"),
        (",a", "the session id is not a UUID"),
        ("garbage,a", "the session id is not a UUID"),
        (f"{{{SESSION}}},a", "the session id is not a UUID"),
        (f"urn:uuid:{SESSION},a", "the session id is not a UUID"),
        (f"{SESSION.replace('-', '')},a", "the session id is not a UUID"),
        (f"{SESSION},\ud800", "the address is not text"),
        (f"{SESSION},{'a' * 1025}", "the address is longer than 1024 bytes"),
        (f"{SESSION},{'ä' * 513}", "the address is longer than 1024 bytes"),
        (f"{SESSION},{'a' * 1_048_576}", "the address is longer than 1024 bytes"),
    ],
)
def test_what_is_no_leader_says_why(value: str, reason: str) -> None:
    """One reason each, without the value."""
    assert decode_leader(value) == Unreadable(reason)


@given(st.text() | st.builds(lambda text: f"{SESSION},{text}", st.text()))
def test_whatever_the_value_the_leader_can_be_written_down(value: str) -> None:
    """It never raises, and what it yields is JSON."""
    msgspec.json.encode(decode_leader(value))


# -- leases ------------------------------------------------------------------------------------------------------------


def annotation(duration: str = "15.000000000") -> str:
    return (
        f'{{"holderIdentity":"a-holder","leaseDuration":{duration},"acquireTime":"2026-11-20T08:12:04.882702Z",'
        '"renewTime":"2026-11-20T08:12:09.932012Z","leaderTransitions":3}'
    )


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("15.000000000", 15), ("15", 15), ('"PT15S"', 15), ('"PT1M30S"', 90), ('"PT0.5S"', 0.5), ('"PT1H"', 3600)],
)
def test_a_lease_is_read_in_both_spellings_of_a_duration(written: str, seconds: float) -> None:
    """Fabric8 writes seconds as a number, and since version 7 in ISO 8601."""
    assert decode_lease(annotation(written)) == LeaderElectionRecord(
        "a-holder", round(seconds * SECOND), "2026-11-20T08:12:04.882702Z", "2026-11-20T08:12:09.932012Z", 3
    )


@pytest.mark.parametrize(
    "lease_text",
    [
        "{}",
        '{"holderIdentity":null,"leaseDuration":null,"acquireTime":null,"renewTime":null,"leaderTransitions":null}',
        '{"holderIdentity":"","leaderTransitions":-1,"somethingNew":[{}]}',
    ],
)
def test_what_is_missing_is_tolerated(lease_text: str) -> None:
    """Null, missing, or more than there is today: a lease that nobody holds, for the usual duration."""
    assert decode_lease(lease_text) == LeaderElectionRecord("", 15 * SECOND, "", "", None)


@pytest.mark.parametrize(
    ("lease_text", "reason"),
    [
        ("", "the lease is not JSON"),
        ("garbage", "the lease is not JSON"),
        ('{"holderIdentity":', "the lease is not JSON"),
        ("[]", "a field of the lease has a value that it never has"),
        ('{"holderIdentity":7}', "a field of the lease has a value that it never has"),
        ('{"x":' * 1000, "the lease is not JSON"),
        ('{"x":' + "[" * 9000, "the lease is not JSON"),
        (annotation("true"), "a field of the lease has a value that it never has"),
        (annotation("-1"), "the duration of the lease cannot be read"),
        (annotation("1e300"), "the duration of the lease cannot be read"),
        (annotation('"P1Y"'), "the duration of the lease cannot be read"),
        (annotation('"PT"'), "the duration of the lease cannot be read"),
        (annotation('"PT१S"'), "the duration of the lease cannot be read"),
        ("\ud800", "the lease is not text"),
        ("x" * 10_001, "more than 10000 characters: longer than any lease"),
        (annotation().replace("a-holder", "h" * 257), "a field of the lease has a value that it never has"),
        (annotation().replace("2026", "2026" * 100), "a field of the lease has a value that it never has"),
    ],
)
def test_what_is_no_lease_says_why(lease_text: str, reason: str) -> None:
    """One reason each, without the value."""
    assert decode_lease(lease_text) == Unreadable(reason)


@given(
    st.text()
    | st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["holderIdentity", "leaseDuration"]), inner),
    ).map(lambda value: msgspec.json.encode(value).decode())
)
def test_whatever_the_annotation_the_lease_can_be_written_down(lease_text: str) -> None:
    """It never raises, and what it yields is JSON."""
    msgspec.json.encode(decode_lease(lease_text))


# -- what real Flink wrote ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "components", "config_maps", "values"),
    [
        ("1.14.6", {RESOURCE_MANAGER, DISPATCHER, REST_SERVER}, 4, 90),
        ("1.20.5", {RESOURCE_MANAGER, DISPATCHER, REST_SERVER}, 1, 141),
        ("2.3.0", {RESOURCE_MANAGER, DISPATCHER, REST_SERVER, THE_JOB}, 1, 56),
    ],
)
def test_everything_that_real_flink_wrote_is_read(
    version: str, components: set[ComponentId], config_maps: int, values: int
) -> None:
    """Each value is a leader of a component that there was, each annotation is a lease of 15 s, or of 1 s where it was released."""
    leaders: Counter[ComponentId] = Counter()
    durations, names = set(), set()
    for entry in configmap_recordings.entries(version):
        metadata = entry["ev"]["object"]["metadata"] if "ev" in entry else {}
        if not configmaps.is_leaders(configmap_recordings.CLUSTER, metadata.get("name", "")):
            continue
        config_map = configmap_recordings.observed(0, entry["ev"]["object"])
        names.add(config_map.name)
        lease = decode_lease(config_map.leader or "")
        assert isinstance(lease, LeaderElectionRecord)
        durations.add(lease.lease_duration)
        for component, value in configmaps.values(
            configmap_recordings.CLUSTER, config_map.name, config_map.data
        ).values():
            leader = decode_leader(value)
            assert isinstance(leader, LeaderInformation)
            leaders[component] += 1
    assert set(leaders) == components
    assert len(names) == config_maps
    assert durations <= {15 * SECOND, SECOND}
    assert leaders.total() == values
