"""The table of bounds: how much each border lets in, and what happens beyond it.

A border is where something enters that others can write: a store's list or document, a REST server's, observer's or receiver's
answer, a child process. Beyond a bound the one that exceeds it is left out, and that is reported; its neighbours are not affected.
The modules at the borders take their limits from here, and docs/how-to/security.md shows this table: the bounds are fixed, not configured.
"""

from typing import Final, NamedTuple

KIB: Final = 1 << 10
MIB: Final = 1 << 20


class Bound(NamedTuple):
    """One border's bounds. 0: that measure does not apply. No more than a tuple, because the children that load little read it, too."""

    border: str
    """What enters, and from where: the first column of the page's table."""
    total: str
    """What bounds all of this kind together."""
    beyond: str
    """What happens beyond it, and where it is reported."""
    most_bytes: int = 0
    most_items: int = 0
    most_depth: int = 0
    most_seconds: float = 0.0


STORE_LIST: Final = Bound(
    border="a znode, a list of znodes, a page of ConfigMaps",
    most_bytes=4 * MIB,
    most_items=50_000,
    total="one at a time",
    beyond="what is watched in that folder stays watched, others in it are not found; of a cluster, its jobs are not observed",
)
CONFIG_MAP: Final = Bound(
    border="a ConfigMap",
    most_bytes=16 * MIB,
    total="one at a time; of those that are no cluster's nothing is kept",
    beyond="its namespace cannot be listed, and the clusters there are BLIND; an API server takes 1 MiB",
)
JOBS_OF_CLUSTER: Final = Bound(
    border="the jobs of a cluster",
    most_items=5_000,
    total="see the jobs of all clusters",
    beyond="the other jobs are not observed: the cluster is BLIND for them, and none of them counts as vacant",
)
JOBS_OF_ALL: Final = Bound(
    border="the jobs of all clusters",
    most_items=20_000,
    total="a folder or namespace gets at most half of what the others leave",
    beyond="as of a cluster's jobs; those that are observed already stay",
)
CLUSTERS: Final = Bound(
    border="the clusters that are found",
    most_items=5_000,
    total="a folder, namespace or the root itself gets at most half of what the others leave; those that were watched before come first",
    beyond="the other clusters of that folder or namespace are not watched",
)
PATHS: Final = Bound(
    border="the znodes that are listed to find clusters",
    most_items=20_000,
    total="a folder, or the root itself, gets at most half of what the others leave; those of clusters that were watched before come first",
    beyond="clusters in the other znodes of that folder are not found",
)
JOURNAL: Final = Bound(
    border="the journal",
    most_bytes=1024 * MIB,
    total="records stay until the spool has them, and the last 10,000 of those; beside it SQLite's log of the last transactions",
    beyond="as if the disk were full: 100,000 records wait in memory, the oldest beyond are lost and counted, alerts are still sent",
)
CONFIGURATION: Final = Bound(
    border="the configuration, a file of rules or of tests of rules",
    most_bytes=256 * KIB,
    most_items=20_000,
    most_depth=32,
    total="each file; what a YAML alias stands for counts each time",
    beyond="the file is refused",
)
FLINK_CONF: Final = Bound(
    border="Flink's configuration: a file, or a ConfigMap that holds it",
    most_bytes=MIB,
    most_items=50_000,
    most_depth=100,
    total="one for each cluster of the configuration",
    beyond="the configuration is refused; of a ConfigMap, `ha check` says what it did not read",
)
KUBECONFIG: Final = Bound(
    border="a kubeconfig",
    most_bytes=4 * MIB,
    most_items=20_000,
    most_depth=32,
    total="one for each cluster of the configuration",
    beyond="the configuration is refused",
)

LEDGER: Final = Bound(
    border="the ledger",
    most_bytes=256 * KIB,
    most_items=2_000,
    total="one of a cluster; one for all clusters that are found",
    beyond="the entries that changed longest ago are left out: what they say may be sent again",
)

HANDOVER: Final = Bound(
    border="a handover, packed: 8 MiB unpacked",
    most_bytes=192 * KIB,
    most_items=5_000,
    total="one of a cluster, read once",
    beyond="the sidecar starts without it, and records that",
)

SILENCES: Final = Bound(
    border="silences and drills",
    most_bytes=64 * KIB,
    most_items=100,
    total="one document of a cluster; one for all clusters that are found",
    beyond="the document silences nothing, and page and `silence list` say why",
)

OBSERVER: Final = Bound(
    border="what another observer answers",
    most_bytes=1 * MIB,
    most_items=5_000,
    most_seconds=1.0,
    total="16 observers of a ledger, one after the other, 2 s; only those that have sent a notification of this one lately",
    beyond="it has no vote",
)
RECEIVER: Final = Bound(
    border="what a receiver answers over HTTP",
    most_bytes=1 * MIB,
    most_seconds=20.0,
    total="4 at a time, in children",
    beyond="the rest is not read",
)
ALERTS_OF_ALERTMANAGER: Final = Bound(
    border="the alerts that an Alertmanager lists",
    most_bytes=16 * MIB,
    total="4 at a time, in children",
    beyond="the list is unreadable: the delivery is tried again, and recorded",
)
MAIL_SERVER: Final = Bound(
    border="one reply of a mail server",
    most_bytes=64 * KIB,
    most_seconds=20.0,
    total="4 at a time, in children",
    beyond="the attempt has timed out: it is tried again, and recorded",
)
SENDER: Final = Bound(
    border="memory of the child that sends a message",
    most_bytes=128 * MIB,
    most_seconds=20.0,
    total="4 at a time",
    beyond="the attempt has timed out: it is tried again, and recorded",
)
CAPTURER: Final = Bound(
    border="memory of the child that captures evidence, and of py-spy",
    most_bytes=128 * MIB,
    total="one of each source at a time",
    beyond="the evidence is recorded as missing",
)
KUBECONFIG_READER: Final = Bound(
    border="memory of the child that reads a kubeconfig, and of the program that it names",
    most_bytes=1024 * MIB,
    total="one for each kubeconfig",
    beyond="the cluster is blind, and says why",
)
CHILD: Final = Bound(
    border="what a child answers",
    most_bytes=16 * MIB,
    total="as many as there are children",
    beyond="as if it had not answered",
)
STACKS: Final = Bound(
    border="what a JVM or py-spy prints: a thread dump, stacks",
    most_bytes=4 * MIB,
    most_seconds=10.0,
    total="10 processes of a request, one after the other",
    beyond="a thread dump is cut off; stacks are recorded as missing",
)
REST_ANSWER: Final = Bound(
    border="what a REST server answers: jobs, TaskManagers, applications, checkpoints",
    most_bytes=4 * MIB,
    most_items=40_000,
    most_seconds=2.0,
    total="10 s for a picture; 4 clusters at a time; 50,000 jobs, TaskManagers and applications are kept of all clusters",
    beyond="there is no picture of that cluster, and its page says why",
)
REST_SMALL_ANSWER: Final = Bound(
    border="what a REST server answers to all else",
    most_bytes=256 * KIB,
    most_items=40_000,
    most_seconds=2.0,
    total="as above",
    beyond="as above",
)
EVIDENCE_ANSWER: Final = Bound(
    border="what a REST server answers for evidence",
    most_bytes=2 * MIB,
    most_seconds=5.0,
    total="40 s for all of a request, in a child",
    beyond="the evidence is recorded as missing",
)

MOST_PORTS: Final = 16
"""Of one process that listens: a JobManager does on four or so."""
OUT_OF_MEMORY: Final = 77
"""The exit status of a child that has reached its bound."""

BOUNDS: Final = tuple(bound for bound in tuple(globals().values()) if isinstance(bound, Bound))
"""Every border of this module, in the order of the page."""


def markdown() -> str:
    """The table for the page: one row a border."""
    rows = (
        f"| {bound.border} | {_size(bound.most_bytes)} | {_number(bound.most_items)} | {_number(bound.most_depth)} "
        f"| {_number(bound.most_seconds)} | {bound.total} | {bound.beyond} |"
        for bound in BOUNDS
    )
    head = ("| border | bytes | items | depth | seconds | all together | beyond it |", "|---|---|---|---|---|---|---|")
    return "\n".join((*head, *rows))


def _size(size: int) -> str:
    if not size:
        return ""
    return f"{size // MIB} MiB" if size % MIB == 0 else f"{size // KIB} KiB" if size % KIB == 0 else f"{size:,}"


def _number(number: float) -> str:
    return f"{number:,g}" if number < 1_000_000 and number else f"{number:,.0f}" if number else ""
