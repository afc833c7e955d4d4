"""Whatever version of Flink wrote it, the place of every leader is found, and none is chosen."""

from itertools import pairwise

import pytest

from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId
from sidecar.core.flink.znode_paths import ZNodeLayout
from tests.kit import zookeeper_recordings as recordings
from tests.kit.cluster import ALL_FOUR, JOB, A, B, job_manager
from tests.kit.core_sidecar import Sidecar
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes
from tests.kit.zookeeper_recordings import Tree

ERAS = {"1.13.6": ZNodeLayout.Z1, "1.14.6": ZNodeLayout.Z2, "1.20.5": ZNodeLayout.Z4, "2.3.0": ZNodeLayout.Z4}
JOBS = {
    "1.13.6": "1e122730b9d708876a277fee71cefbe8",
    "1.14.6": "8ea688edd7fdd2250be2530ffc83061f",
    "1.20.5": "179d7f9aa9d61fcd6664dd9fd4821094",
    "2.3.0": "ff595cc2c737b4d30a69e740b7002d50",
}


def watched(tree: Tree) -> znode_paths.Wanted:
    """What is watched in the end, when each list that is wanted shows its children."""
    wanted = znode_paths.wanted({})
    while True:
        more = znode_paths.wanted({path: tree.children(path) for path in wanted.lists})
        if more == wanted:
            return wanted
        wanted = more


@pytest.mark.parametrize("version", recordings.VERSIONS)
def test_every_leader_of_a_real_cluster_is_watched(version: str) -> None:
    """At each recorded moment, the watched places that exist are exactly the znodes that hold leaders: one for each leadership."""
    for moment in recordings.MOMENTS:
        tree = recordings.tree(version, moment)
        paths = watched(tree).nodes & tree.nodes.keys()
        assert paths == set(tree.leaders())
        assert {znode_paths.component_of(path) for path in paths} == {
            *CLUSTER_COMPONENTS,
            ComponentId(Component.JOB, JOBS[version]),
        }
        assert {znode_paths.layout_of(path) for path in paths} - {None} == {ERAS[version]}


@pytest.mark.parametrize("version", recordings.VERSIONS)
def test_the_contenders_of_a_real_cluster_are_counted(version: str) -> None:
    """Two JobManagers contend while both run, and one after the leader was killed, whether there is one latch or one for each component."""
    both = recordings.tree(version, "02-job-running")
    latches = [path for path in watched(both).lists if znode_paths.is_latch(path) and path in both.nodes]
    assert len(latches) == (3 if ERAS[version] in {ZNodeLayout.Z1, ZNodeLayout.Z2} else 1)
    assert {len(both.children(path)) for path in latches} == {2}
    assert {len(recordings.tree(version, "04-i-new-leader").children(path)) for path in latches} == {1}


@pytest.mark.parametrize("version", recordings.VERSIONS)
def test_the_jobs_of_a_real_cluster_are_listed(version: str) -> None:
    """The job store is watched under its name of that version."""
    tree = recordings.tree(version, "02-job-running")
    stores = watched(tree).lists & set(znode_paths.JOB_STORES)
    assert [znode_paths.job_ids(tree.children(store)) for store in sorted(stores) if store in tree.nodes] == [
        {JOBS[version]}
    ]


def test_the_places_of_a_fresh_cluster_are_watched_before_they_exist() -> None:
    """Nothing has to be there: the first leader of a component is seen in whatever layout it comes."""
    nothing = znode_paths.wanted({}).nodes
    for era in ZNodeLayout:
        assert {ZNodes(era).path(component) for component in CLUSTER_COMPONENTS} <= nothing


@pytest.mark.parametrize(
    "path",
    [
        "/leader/latch",
        "/leader/dispatcher",
        "/leader/dispatcher/connection_info/child",
        "/leader/dispatcher/connection_info\n",
        "/leader/dispatcher_2/connection_info",
        "/leader/job/connection_info",
        f"/leader/{JOB.upper()}/connection_info",
        f"/leader/{JOB}0/connection_info",
        f"/leader/job-{JOB}/job_manager_lock",
        f"/jobs/{JOB}/connection_info",
        f"/flink/default/leader/job-{JOB}/connection_info",
    ],
)
def test_no_leader_stands_anywhere_else(path: str) -> None:
    """A path that merely looks like a leader's is nobody's."""
    assert znode_paths.component_of(path) is None


@pytest.mark.parametrize(
    ("root", "cluster_id", "path"),
    [
        ("/flink", "/default", "/flink/default"),
        ("flink", "default", "/flink/default"),
        ("//root//", "//namespace//", "/root/namespace"),
        ("////", "namespace", "/namespace"),
        ("/flink", "", "/flink"),
        ("", "", "/"),
        ("/a/b/", "/c/d", "/a/b/c/d"),
    ],
)
def test_the_namespace_is_joined_as_flink_joins_it(root: str, cluster_id: str, path: str) -> None:
    """`ZooKeeperUtils.generateZookeeperPath`."""
    assert znode_paths.namespace(root, cluster_id) == path


def test_an_upgrade_under_us_moves_every_leader_and_loses_none() -> None:
    """1.13, 1.14, 1.17, 2.x, one after the other on the same namespace: each upgrade is A->null->B, alerted once."""
    versions = dict(zip(ZNodeLayout, (A, B, job_manager("jm-c"), job_manager("jm-d")), strict=True))
    flink = Flink(ZNodes(ZNodeLayout.Z1)).submit().elect(A)
    sidecar = Sidecar(flink).connects().waits(90)
    for before, after in pairwise(ZNodeLayout):
        sidecar.records.clear()
        sidecar.sees(flink.vacate().forget()).waits(5)
        flink.znodes.era = after
        sidecar.sees(flink.submit().elect(versions[after])).waits(90)
        for component in CLUSTER_COMPONENTS:
            assert [t.pattern for t in sidecar.transitions(component)] == ["A->null", "null->B"], (before, component)
            assert sidecar.transitions(component)[-1].after_address == versions[after].leads(component).address
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")] * 3


@pytest.mark.parametrize(
    ("before", "after"),
    [(ZNodeLayout.Z1, ZNodeLayout.Z2), (ZNodeLayout.Z2, ZNodeLayout.Z3), (ZNodeLayout.Z3, ZNodeLayout.Z4)],
)
def test_the_last_process_of_an_old_version_stays_watched_beside_the_new(
    before: ZNodeLayout, after: ZNodeLayout
) -> None:
    """A rolling upgrade: while the old leader still leads, a JobManager of the next version joins. The old places are still watched."""
    flink = Flink(ZNodes(before)).submit().elect(A)
    flink.znodes.write("/leader/dispatcher/latch/_c_a-latch-0000000000", None, A.zookeeper_session)
    flink.znodes.era = after
    flink.elect(B, CLUSTER_COMPONENTS[2])
    flink.znodes.era = before
    old = {flink.znodes.path(component) for component in ALL_FOUR}
    assert old & flink.znodes.tree.nodes.keys() <= watched(flink.znodes.tree).nodes


@pytest.mark.parametrize(
    ("names", "leaders", "expected"),
    [
        (["leader", "leaderlatch"], [], True),
        (["leader", "jobgraphs"], [], True),
        (["leader", "execution-plans"], [], True),
        (["leader"], ["latch"], True),
        (["leader"], ["dispatcher"], True),
        (["leader"], ["resource_manager_lock"], True),
        (["leader"], ["ff595cc2c737b4d30a69e740b7002d50"], True),
        (["leader"], ["job-ff595cc2c737b4d30a69e740b7002d50"], True),
        (["leader"], [], False),
        (["leader"], ["orders", "job-7"], False),
        (["jobgraphs", "leaderlatch"], ["latch"], False),
        ([], [], False),
    ],
)
def test_a_cluster_is_known_by_its_leaders(names: list[str], leaders: list[str], *, expected: bool) -> None:
    """In every layout, by what Flink has beside or below `leader`; a folder of that name is none."""
    assert znode_paths.is_cluster(names, leaders) is expected
