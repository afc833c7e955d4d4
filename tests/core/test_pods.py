"""Pods are known by the addresses of leaders, and named wherever a leader is."""

import pytest
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.moment import SECOND
from sidecar.core.observations import HandoverRead, PodNamed
from sidecar.core.pods import MOST_PODS, Pod, canonical, host_of, ip_addresses, merged, name_at, spelled, with_pod
from sidecar.core.views import episode_view
from sidecar.core.views.explain import explanation_lines, find
from sidecar.core.views.leader_view import leaders
from sidecar.core.views.snapshot import Snapshot
from tests.kit.cluster import CLUSTER, job_manager
from tests.kit.core_sidecar import LEADER_CHANGED, NO_LEADER, POLICY, Sidecar, watching
from tests.kit.fake_flink import Flink

OLD, NEW = job_manager("10.1.2.3"), job_manager("10.1.2.4")
OLD_POD, NEW_POD = "orders-jobmanager-7d9f4b-abcde", "orders-jobmanager-7d9f4b-fghij"
LONGEST = f"{'a' * 63}." * 3 + "b" * 61


def named(sidecar: Sidecar, host: str, name: str | None, uid: str | None = "uid-1") -> None:
    """It is found out which pod has the address."""
    pod = Pod(name, uid, sidecar.now) if name else None
    sidecar.observe(PodNamed(sidecar.moment, CLUSTER, host, pod))


def fail_over(flink: Flink, sidecar: Sidecar) -> None:
    """The pod of the leader is replaced, and a message is sent."""
    sidecar.sees(flink.vacate()).waits(2).sees(flink.elect(NEW)).waits(1)


def cluster_of_pods() -> tuple[Flink, Sidecar]:
    """A cluster whose JobManagers have the addresses of their pods, and the name of the first."""
    flink, sidecar = watching(OLD)
    named(sidecar, "10.1.2.3", OLD_POD)
    return flink, sidecar


def test_a_message_names_the_pods() -> None:
    """The lines before their addresses; the title where it has room. A name that is known before the message is sent is in time."""
    flink, sidecar = cluster_of_pods()
    fail_over(flink, sidecar)
    named(sidecar, "10.1.2.4", NEW_POD)
    sidecar.waits(10)
    [message] = sidecar.sent
    assert message.title.startswith(f"[UNCHECKED] default: {NEW_POD} leads; whether jobs run")
    assert f"JobManager: {OLD_POD}, 10.1.2.3:6123 → {NEW_POD}, 10.1.2.4:6123 at 2026-" in message.body


def test_a_message_does_not_wait_for_a_name() -> None:
    """It has the address then, and comes as soon as without names."""
    flink, sidecar = watching(OLD)
    fail_over(flink, sidecar)
    sidecar.waits(4)
    [message] = sidecar.sent
    assert "JobManager: 10.1.2.3:6123 → 10.1.2.4:6123 at 2026-" in message.body


def test_a_vacancy_and_its_end_name_the_pods() -> None:
    """Who led, and who was elected."""
    flink, sidecar = watching(OLD, policy=replace(POLICY, rules=(NO_LEADER,)))
    named(sidecar, "10.1.2.3", OLD_POD)
    sidecar.sees(flink.vacate()).waits(40)
    named(sidecar, "10.1.2.4", NEW_POD)
    sidecar.sees(flink.elect(NEW)).waits(90)
    firing, over = sidecar.sent
    assert f"(previous leader: {OLD_POD}, 10.1.2.3:6123)" in firing.body
    assert f"elected {NEW_POD}, 10.1.2.4:6123 at" in over.body


def test_templates_have_the_names_of_pods() -> None:
    """`before.pod` and `after.pod`: empty where they are not known."""
    rule = replace(LEADER_CHANGED, summary=lambda fields: f"{fields['before']} {fields['after']}")
    flink, sidecar = watching(OLD, policy=replace(POLICY, rules=(rule,)))
    named(sidecar, "10.1.2.3", OLD_POD)
    fail_over(flink, sidecar)
    sidecar.waits(10)
    assert f"'pod': '{OLD_POD}'" in sidecar.sent[0].title
    assert "'address': '10.1.2.4:6123', 'pod': ''" in sidecar.sent[0].title


def test_records_and_explain_and_page_name_the_pods() -> None:
    """The episode while it is in progress and when it is closed; the leaders now."""
    flink, sidecar = cluster_of_pods()
    sidecar.sees(flink.vacate())
    [view] = episode_view.open_episodes(Snapshot(sidecar.moment, sidecar.state))
    assert (view.before_pod, view.after_pod) == (OLD_POD, None)
    sidecar.sees(flink.elect(NEW))
    named(sidecar, "10.1.2.4", NEW_POD)
    sidecar.waits(10)
    [episode] = sidecar.episodes()
    assert (episode.before_pod, episode.after_pod) == (OLD_POD, NEW_POD)
    assert episode_view.closed(episode).after_pod == NEW_POD
    words = [*explanation_lines(find(sidecar.records, episode.id))]
    assert f"leader     {OLD_POD}, 10.1.2.3:6123 → {NEW_POD}, 10.1.2.4:6123" in words
    assert {leader.pod for leader in leaders(Snapshot(sidecar.moment, sidecar.state))} == {NEW_POD}


def test_names_survive_a_restart_and_a_handover() -> None:
    """Of the previous leader too: its pod is gone, and nobody could be asked."""
    for lost in ("disk kept", "disk lost"):
        flink, sidecar = cluster_of_pods()
        if lost == "disk lost":
            sidecar.is_replaced(5)
        else:
            sidecar.is_killed(5)
        flink.elect(NEW)
        named(sidecar, "10.1.2.4", NEW_POD)
        sidecar.connects().waits(10)
        assert f"{OLD_POD}, 10.1.2.3:6123 → {NEW_POD}, 10.1.2.4:6123 at " in sidecar.sent[-1].body, lost


def test_the_own_pod_is_known_whatever_was_handed_over() -> None:
    """It is named before the handover is read, which may have another pod at that address, of earlier."""
    _, before = watching(OLD)
    named(before, "10.1.2.9", OLD_POD)
    left = handover.written(CLUSTER, handover.cluster_handover(POLICY, before.state, CLUSTER, before.moment))
    sidecar = Sidecar(Flink())
    sidecar.now = before.now + SECOND
    named(sidecar, "10.1.2.9", NEW_POD)
    sidecar.observe(HandoverRead(sidecar.moment, CLUSTER, left))
    assert sidecar.state.clusters[CLUSTER].pods["10.1.2.9"].name == NEW_POD


def test_a_sidecar_that_watches_already_learns_names_from_another() -> None:
    """What the previous one wrote while both run."""
    flink, other = watching(OLD)
    named(other, "10.1.2.4", NEW_POD)
    left = handover.written(
        CLUSTER, handover.cluster_handover(replace(POLICY, observer="other"), other.state, CLUSTER, other.moment)
    )
    sidecar = Sidecar(flink).connects()
    sidecar.observe(HandoverRead(other.moment, CLUSTER, left))
    assert sidecar.state.clusters[CLUSTER].pods == other.state.clusters[CLUSTER].pods


def test_an_address_of_a_new_pod_has_the_new_name() -> None:
    """Addresses are given out again. Nothing older replaces it; and if nobody knows whose it is, there is none."""
    old, new = Pod("old", "1", 10), Pod("new", "2", 20)
    pods = with_pod(with_pod({}, "10.1.2.3", old), "10.1.2.3", new)
    assert pods == {"10.1.2.3": new}
    assert with_pod(pods, "10.1.2.3", old) is pods
    assert with_pod(pods, "10.1.2.3", replace(new, named_at=30)) is pods
    assert with_pod(pods, "10.1.2.3", None) == {}
    assert with_pod({}, "10.1.2.3", None) == {}


def test_the_latest_pods_are_kept() -> None:
    """As many as a cluster has JobManagers, and more; whatever another sidecar hands over."""
    many = {f"10.1.2.{n}": Pod(f"jm-{n}", None, n) for n in range(50)}
    pods = merged({}, many)
    assert sorted(pod.named_at for pod in pods.values()) == [*range(50 - MOST_PODS, 50)]


@pytest.mark.parametrize(
    "name", ["", "UPPER", "-a", "a-", "a..b", "a b", "a\n", "<b>", "ü", LONGEST + "c", "a\N{RIGHT-TO-LEFT OVERRIDE}"]
)
def test_a_name_that_no_pod_can_have_is_ignored(name: str) -> None:
    """Others can write it."""
    assert with_pod({}, "10.1.2.3", Pod(name)) == {}


@pytest.mark.parametrize(
    ("host", "pod"), [("", Pod("a")), ("h" * 254, Pod("a")), ("10.1.2.3", Pod("a", "u" * 65)), ("h", Pod("a", "u\n"))]
)
def test_a_host_or_uid_that_none_can_have_is_ignored(host: str, pod: Pod) -> None:
    """As well."""
    assert with_pod({}, host, pod) == {}


def test_the_longest_name_is_kept() -> None:
    """253 characters."""
    assert len(LONGEST) == 253
    assert with_pod({}, "10.1.2.3", Pod(LONGEST, "3b1c")) == {"10.1.2.3": Pod(LONGEST, "3b1c")}


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("pekko.tcp://flink@10.1.2.3:6123/user/rpc/dispatcher_0", "10.1.2.3"),
        ("http://10.1.2.3:8081", "10.1.2.3"),
        ("10.1.2.3:6123", "10.1.2.3"),
        ("pekko.tcp://flink@[2001:db8:0:0:0:0:0:1]:6123/user/rpc/dispatcher_0", "2001:db8::1"),
        ("[2001:db8::1]:6123", "2001:db8::1"),
        ("flink-jobmanager:6123", "flink-jobmanager"),
        ("http://[broken", "http"),
        ("", ""),
    ],
)
def test_the_host_of_an_address(address: str, host: str) -> None:
    """As a pod's status has it."""
    assert host_of(address) == host


def test_only_ip_addresses_are_asked_for() -> None:
    """Each once; a host name is not the address of a pod."""
    addresses = ["http://10.1.2.3:8081", "akka.tcp://flink@10.1.2.3:6123/user/x", "http://jm-0:8081", "http://[::1]:80"]
    assert ip_addresses(addresses) == ("10.1.2.3", "::1")
    assert canonical("[::1]") == "::1"


def test_a_host_name_that_begins_with_the_pods_name_is_its_own() -> None:
    """A StatefulSet: the name is found, and not written twice."""
    pods = {"10.1.2.3": Pod("flink-jobmanager-0")}
    place = "flink-jobmanager-0.flink-jobmanager.flink.svc:6123"
    assert name_at(pods, place) == "flink-jobmanager-0"
    assert name_at(pods, "flink-jobmanager-1.flink-jobmanager.flink.svc:6123") is None
    assert spelled(place, "flink-jobmanager-0") == place
    assert name_at({"h": Pod("10")}, "10.1.2.3:6123") is None


def test_pods_are_asked_for_where_that_is_wanted() -> None:
    """At the first sight, and when a leader follows: for the addresses of the cluster's own components."""
    flink = Flink().submit().elect(OLD)
    sidecar = Sidecar(flink, replace(POLICY, pod_names=frozenset({CLUSTER}))).connects()
    assert set(sidecar.wanted) == {"10.1.2.3"}
    sidecar.wanted.clear()
    fail_over(flink, sidecar)
    assert set(sidecar.wanted) == {"10.1.2.4"}
    assert watching(OLD)[1].wanted == []
