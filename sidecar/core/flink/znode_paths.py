"""Flink's znodes in all versions: paths ⇄ component ids.

| layout | Flink       | leader of a cluster component          | leader of a job                          | contenders            |
|--------|-------------|----------------------------------------|------------------------------------------|-----------------------|
| Z1     | ≤ 1.13      | `/leader/<component>_lock`             | `/leader/<job>/job_manager_lock`         | `/leaderlatch/…`      |
| Z2     | 1.14        | `/leader/<component>/connection_info`  | `/jobs/<job>/leader/connection_info`     | `/leader/<c>/latch`   |
| Z3     | 1.15 - 1.18 | the same                               | `/leader/<job>/connection_info`          | `/leader/latch`       |
| Z4     | ≥ 1.19      | the same                               | `/leader/job-<job>/connection_info`      | `/leader/latch`       |

No layout is ever chosen: every existing path is watched, and the newest value of a leadership counts. So a cluster may be upgraded while it
is watched. All paths here are relative to the namespace (`/flink/default`) and begin with a slash.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId


class ZNodeLayout(StrEnum):
    """A layout of Flink's paths in ZooKeeper, named by the versions that write it."""

    Z1 = "1.13 or older"
    Z2 = "1.14"
    Z3 = "1.15 - 1.18"
    Z4 = "1.19 or newer"


LEADER = "/leader"
LATCH = "/leader/latch"
"""The latch of all components of a process, since 1.15."""
OLD_JOB_MANAGER = "0" * 32
"""The id that stands for the leader of the JobManager up to Flink 1.4, in place of a job's id."""
JOBS = "/jobs"
JOB_STORES = ("/jobgraphs", "/execution-plans")
"""The jobs that Flink would recover (`execution-plans` since 2.0). A job that is removed from here has ended."""

MOST_CONTENDERS = 1000
"""The most contenders of one latch. A cluster has a few JobManagers."""
LONGEST_CONTENDER = 200
"""Characters of a name. Curator's have 56."""

_SEQUENCE = 10
"""Digits of the number at the end of a sequential node's name."""

OWN_NAMES = frozenset(
    {
        *("leader", "leaderlatch", "jobs", "jobgraphs", "execution-plans", "applications", "job-result-store"),
        *("checkpoints", "checkpoint-counter", "running_job_registry"),
    }
)
"""The names that Flink creates directly below a cluster's namespace."""

_NODE = "/connection_info"
_JOB_ID = re.compile(r"[0-9a-f]{32}")
_CLUSTER_NAMES = "|".join(c.component.value for c in CLUSTER_COMPONENTS)
_LEADER_NODES: tuple[tuple[ZNodeLayout | None, re.Pattern[str]], ...] = (
    (ZNodeLayout.Z1, re.compile(rf"/leader/(?P<component>{_CLUSTER_NAMES})_lock")),
    (None, re.compile(rf"/leader/(?P<component>{_CLUSTER_NAMES})/connection_info")),
    (ZNodeLayout.Z1, re.compile(r"/leader/(?P<job>[0-9a-f]{32})/job_manager_lock")),
    (ZNodeLayout.Z2, re.compile(r"/jobs/(?P<job>[0-9a-f]{32})/leader/connection_info")),
    (ZNodeLayout.Z3, re.compile(r"/leader/(?P<job>[0-9a-f]{32})/connection_info")),
    (ZNodeLayout.Z4, re.compile(r"/leader/job-(?P<job>[0-9a-f]{32})/connection_info")),
)
_LEADERS_CHILD = re.compile(rf"latch|({_CLUSTER_NAMES})(_lock)?|(job-)?[0-9a-f]{{32}}")
_COUNTED = {f"{LEADER}/{c.component.value}{_NODE}": f"{LEADER}/{c.component.value}" for c in CLUSTER_COMPONENTS}
_LATCHES = re.compile(rf"/leader/latch|/leader/({_CLUSTER_NAMES})/latch|/leaderlatch/({_CLUSTER_NAMES})_lock")


class Wanted(Struct, frozen=True):
    """The paths to watch: the values of `nodes`, and the children of `lists`. All of them are below `roots`."""

    nodes: frozenset[str]
    lists: frozenset[str]
    roots: frozenset[str]

    def __contains__(self, path: str) -> bool:
        return path in self.nodes or path in self.lists


def namespace(root: str, cluster_id: str) -> str:
    """Flink's own joining of `high-availability.zookeeper.path.root` and `high-availability.cluster-id` (`ZooKeeperUtils`)."""
    parts = (path.strip("/") for path in (root, cluster_id))
    return "/" + "/".join(part for part in parts if part)


def component_of(path: str) -> ComponentId | None:
    """The component whose leader is published at `path`, or None for other paths."""
    for _, pattern in _LEADER_NODES:
        if match := pattern.fullmatch(path):
            groups = match.groupdict()
            job_id = groups.get("job")
            return ComponentId(Component.JOB, job_id) if job_id else ComponentId(Component(groups["component"]))
    return None


def layout_of(path: str) -> ZNodeLayout | None:
    """The only layout with this leader path, or None if several layouts have it."""
    for layout, pattern in _LEADER_NODES:
        if pattern.fullmatch(path):
            return layout
    return None


def is_latch(path: str) -> bool:
    """Whether the children of `path` are the contenders for a leadership (Curator's `LeaderLatch`)."""
    return _LATCHES.fullmatch(path) is not None


def contenders(names: Sequence[str]) -> tuple[str, ...]:
    """The contenders of a latch by their names, of which nobody needs more, or longer ones: they are kept, and compared at each change."""
    return tuple(name[:LONGEST_CONTENDER] for name in names[:MOST_CONTENDERS])


def place_in_latch(name: str) -> str:
    """The number that ZooKeeper gave to the contender's node, by which a latch orders its contenders. The first one leads."""
    return name[-_SEQUENCE:]


def latched(path: str) -> Component | None:
    """The component whose latch is at `path`; None for the latch of all components."""
    match = _LATCHES.fullmatch(path)
    name = match and (match[1] or match[2])
    return Component(name) if name else None


def job_ids(names: Iterable[str]) -> frozenset[str]:
    """The job ids among the children of a job store."""
    return frozenset(name for name in names if _JOB_ID.fullmatch(name))


def job_of(name: str) -> str | None:
    """The job that a child of `/leader`, `/jobs` or a job store is about."""
    job_id = name.removeprefix("job-")
    return job_id if _JOB_ID.fullmatch(job_id) else None


def counted_at(path: str) -> str | None:
    """The parent of a cluster component's leader node, which has no other child since 1.15; None for other paths.

    Jobs are left out: it would cost one more read for each, and since 1.15 they are elected together with the other components.
    """
    return _COUNTED.get(path)


def leads_on(path: str) -> bool:
    """Whether the children of `path` decide what else to watch: see `wanted`."""
    return path in {LEADER, JOBS} or (path != LATCH and is_latch(path))


def is_cluster(names: Iterable[str], leaders: Iterable[str]) -> bool:
    """Whether a path with these children is a cluster's namespace, if its child `leader` has the children `leaders`.

    Flink of every version makes `leader`. A folder of that name, by which somebody orders clusters, has nothing of Flink in or beside it.
    """
    children = {*names}
    beside = {"jobgraphs", "execution-plans", "leaderlatch"}
    return "leader" in children and (not beside.isdisjoint(children) or any(map(is_leaders_child, leaders)))


def is_leaders_child(name: str) -> bool:
    """Whether Flink makes a znode of this name below `/leader`."""
    return _LEADERS_CHILD.fullmatch(name) is not None


def is_list(path: str) -> bool:
    """Whether the children of `path` are contenders of a latch, or jobs of a store."""
    return path in JOB_STORES or is_latch(path)


def wanted(children: Mapping[str, Iterable[str]]) -> Wanted:
    """The paths to watch next, given the children of each watched list observed so far (a list that does not exist has none)."""
    leader = frozenset(children.get(LEADER, ()))
    one_latch = "latch" in leader
    old_contenders = False
    nodes = set()
    lists = {LEADER, *JOB_STORES}
    # Not the whole namespace: each checkpoint of a job causes several writes there.
    roots = {LEADER, "/leaderlatch", *JOB_STORES}
    for component in CLUSTER_COMPONENTS:
        name = component.component.value
        nodes.add(f"{LEADER}/{name}{_NODE}")
        nodes.add(f"{LEADER}/{name}_lock")
        if name in leader:
            lists.add(f"{LEADER}/{name}/latch")
            old_contenders = old_contenders or bool(children.get(f"{LEADER}/{name}/latch"))
        if f"{name}_lock" in leader:
            lists.add(f"/leaderlatch/{name}_lock")
    if one_latch:
        lists.add(LATCH)
    if old_contenders or (LEADER in children and not one_latch):  # up to 1.14 a job's leader is beside its checkpoints
        lists.add(JOBS)
        roots.add(JOBS)
    nodes |= {f"{JOBS}/{job}/leader{_NODE}" for job in job_ids(children.get(JOBS, ()))}
    for name in leader:
        if _JOB_ID.fullmatch(name):
            nodes |= {f"{LEADER}/{name}{_NODE}", f"{LEADER}/{name}/job_manager_lock"}
        elif name.startswith("job-") and _JOB_ID.fullmatch(name.removeprefix("job-")):
            nodes.add(f"{LEADER}/{name}{_NODE}")
    return Wanted(frozenset(nodes), frozenset(lists), frozenset(roots))
