"""Nobody uses up what all clusters share, and what is watched stays watched."""

from msgspec.structs import replace

from sidecar.core.moment import Moment
from sidecar.core.observations import ClusterFound, ConfigMapObserved, FinderObservation, LeftOut, ViewObserved
from sidecar.drivers.kubernetes.configmap_reports import FoundClusters, FoundReports
from sidecar.drivers.kubernetes.objects import ConfigMap
from sidecar.drivers.shares import Shares, WatchedJobs
from sidecar.drivers.zookeeper.discovery import ROOT, Discovery
from sidecar.drivers.zookeeper.zookeeper_session import Children

LEASE = '{"holderIdentity": "jvm", "leaseDuration": 15, "renewTime": "1"}'
JOBS = tuple(f"{number:032x}" for number in range(9))
AT = Moment(0, 0)


def config_map(name: str, *jobs: str) -> ConfigMap:
    namespace, _, app = name.rpartition("/")
    data = {f"org.apache.flink.k8s.leader.job-{job}": "1,a" for job in jobs} | {
        "org.apache.flink.k8s.leader.dispatcher": "1,a"
    }
    return ConfigMap(f"{namespace}/{app}-cluster-config-map", f"uid of {name}", "1", {"app": app}, data, LEASE)


def test_an_owner_gets_half_of_what_the_others_leave() -> None:
    """However much it wants: the next one gets half of the rest, and more when something is given back."""
    shares = Shares(16)
    assert [shares.take(owner, 100) for owner in ("a", "b", "c", "a")] == [8, 4, 2, 0]
    shares.give_back("a", 8)
    assert (shares.take("c", 100), shares.take("d", 100)) == (4, 3)


def test_what_was_there_before_is_not_halved() -> None:
    """It comes first, as far as there is room."""
    shares = Shares(4)
    assert (shares.take_first("a", 3), shares.take("b", 9), shares.take_first("c", 2)) == (3, 1, 0)


def test_an_owners_parts_share_what_it_gets() -> None:
    """Clusters directly below the root, for one: all of them together get half, and each at most half of what the others leave of that."""
    shares = Shares(32)
    assert [shares.take("", 100, part) for part in ("a", "b", "a", "c")] == [8, 4, 0, 2]
    assert shares.take("folder", 100) == 9
    shares.give_back("", 8, "a")
    assert shares.take("", 100, "b") == 1


def test_znodes_directly_below_the_root_are_one_owners() -> None:
    """Whoever adds thousands of them, with leaders or without, uses up half: a cluster that comes to a folder is still found."""
    discovery = Discovery(100)
    answers: dict[str, tuple[str, ...]] = {ROOT: ("team",)}

    def reads() -> None:
        while question := discovery.next():
            path = question[1]
            strangers = ("leader", "jobgraphs") if path.count("/") == 1 and path != "/team" else ()
            discovery.answered(path, Children(answers.get(path, strangers)))

    discovery.read_all()
    reads()
    answers[ROOT] = (*(f"{number:05}" for number in range(1_000)), "team")
    discovery.happened(ROOT)
    reads()
    answers |= {"/team": ("orders",), "/team/orders": ("leader",), "/team/orders/leader": ("latch",)}
    discovery.happened("/team")
    reads()
    assert "team/orders" in discovery.clusters
    assert len(discovery.clusters) <= 50
    assert discovery.left_out[""] > 900


def test_jobs_that_are_watched_stay_so_until_they_are_in_no_list() -> None:
    """In another order, and in another list; then others take their places."""
    shares = Shares(100)
    jobs = WatchedJobs(shares, "a", most=3)
    assert jobs.listed("/leader", "cab") == frozenset("abc")
    assert (jobs.listed("/jobgraphs", "0abc"), jobs.left_out) == (frozenset("abc"), 1)
    assert jobs.listed("/leader", "0") == frozenset()
    assert (jobs.listed("/jobgraphs", "0bc"), jobs.left_out) == (frozenset("0bc"), 1)
    assert (jobs.listed("/leader", "0"), jobs.left_out) == (frozenset("0"), 0)  # it is read again while any is left out
    jobs.end()
    assert shares.take("b", 100) == 50


def test_a_job_that_an_event_leads_to_is_bounded_too() -> None:
    """It has a place until nothing is left of it, or until no list has it any more."""
    jobs = WatchedJobs(Shares(100), "a", most=2)
    assert [jobs.came(job) for job in "aabc"] == [True, True, True, False]
    assert jobs.left_out == 1
    jobs.went("a")
    assert jobs.came("c")
    assert (jobs.listed("/leader", "bc"), jobs.left_out) == (frozenset("bc"), 0)
    jobs.went("b")
    assert not jobs.came("d")  # the list has it


def test_a_namespace_does_not_crowd_out_the_others() -> None:
    """A cluster of another namespace is watched after any number of one; and those that were watched before come first."""
    found = FoundClusters(8, known=["tenant/9"])
    admitted = [found.admit(config_map(f"tenant/{number}")) for number in range(10)]
    assert [*filter(None, admitted)] == ["tenant/0", "tenant/1", "tenant/2", "tenant/3", "tenant/9"]
    assert found.admit(config_map("team/orders")) == "team/orders"
    assert (found.left_out, found.crowded) == (5, ("tenant",))


def test_jobs_of_a_config_map_that_are_too_many_are_taken_out_and_reported_first() -> None:
    """Of the tenant's alone: the ConfigMap of another namespace is whole."""
    seen: list[FinderObservation] = []
    found = FoundClusters()
    reports = FoundReports(found, seen.append, Shares(10))
    for name, jobs in (("tenant/jobs", JOBS), ("team/orders", JOBS[:2])):
        reports.observed(AT, replace(config_map(name, *jobs)))
    kinds = [type(observation) for observation in seen]
    assert kinds == [
        ClusterFound,
        ViewObserved,
        LeftOut,
        ConfigMapObserved,
        ClusterFound,
        ViewObserved,
        ConfigMapObserved,
    ]
    (left_out,) = (observation for observation in seen if isinstance(observation, LeftOut))
    assert (left_out.cluster_id, left_out.jobs) == ("tenant/jobs", 4)
    whole = [observation for observation in seen if isinstance(observation, ConfigMapObserved)]
    assert [len(observation.data or {}) for observation in whole] == [6, 3]
