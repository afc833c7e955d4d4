"""To which cluster a process of Flink belongs: what its command line, its environment and its configuration say.

Only the answer leaves this module: command lines, environments and configurations hold secrets. It loads what reads a configuration
when there is one to be read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.sinks.evidence import processes
from sidecar.sinks.evidence.processes import FlinkProcess

if TYPE_CHECKING:
    from sidecar.settings.cluster.flink_conf import HighAvailability
    from sidecar.settings.model import ClusterSettings

_CONF_DIR: Final = "FLINK_CONF_DIR"
_FILES: Final = ("config.yaml", "flink-conf.yaml")
"""Which of them Flink reads depends on its version."""
_WITHOUT_LEADERS: Final = frozenset({"NONE", "STANDALONE"})


class Owner(Enum):
    """Whose a process is."""

    OURS = "ours"
    OTHER = "other"
    """Certainly another cluster's."""
    UNKNOWN = "unknown"


class Sorted(NamedTuple):
    """The processes that may be captured, and how many may not."""

    ours: list[FlinkProcess]
    others: int = 0
    """Of another cluster."""
    unknown: int = 0
    """Of which it is not known, where another cluster's are visible too."""


def identity(cluster: "ClusterSettings") -> dict[str, str]:
    """What tells a cluster from others, for the capturing process: strings, none of them secret."""
    known = {name: getattr(cluster, name, None) for name in ("quorum", "namespace", "cluster_id")}
    return {"store": cluster.store.value} | {name: value for name, value in known.items() if value is not None}


def sort(found: Sequence[FlinkProcess], cluster: Mapping[str, str] | None) -> Sorted:
    """Which of them may be captured for the cluster with this `identity`; None: all.

    Those whose owner is not known are taken for ours as long as no other cluster's process is visible: in a pod, where none is.
    """
    if cluster is None:
        return Sorted(list(found))
    owners: dict[int, Owner] = {}
    for process in found:  # JVMs come first
        master = process.works_for
        owners[process.pid] = owners[master] if master in owners else _owner(process, cluster)
    shared = Owner.OTHER in owners.values()
    taken = {Owner.OURS} if shared else {Owner.OURS, Owner.UNKNOWN}
    count = list(owners.values()).count
    ours = [process for process in found if owners[process.pid] in taken]
    return Sorted(ours, count(Owner.OTHER), count(Owner.UNKNOWN) if shared else 0)


def _owner(process: FlinkProcess, cluster: Mapping[str, str]) -> Owner:
    folder, properties = _told(process)
    owners = {_compare(said, cluster) for said in _configurations(process.pid, folder, properties)}
    if Owner.OURS in owners or not owners:
        return Owner.OURS if owners else Owner.UNKNOWN
    return owners.pop() if len(owners) == 1 else Owner.UNKNOWN


def _told(process: FlinkProcess) -> tuple[str | None, dict[str, str]]:
    """Flink's configuration folder, and what it was told beside it (`-Dkey=value`)."""
    folder, properties = None, {}
    arguments = iter(_arguments(process))
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument == "--configDir":
            folder = next(arguments, None)
        elif name == "--configDir" and equals:
            folder = value
        elif argument == "-c":  # to Flink's client it is a class
            folder = value if "/" in (value := next(arguments, "")) else folder
        elif argument.startswith("-D"):
            key, equals, value = (argument[2:] or next(arguments, "")).partition("=")
            if equals:
                properties[key] = value
    return folder or _environment(process.pid, _CONF_DIR), properties


def _arguments(process: FlinkProcess) -> list[str]:
    """Those of the program that a JVM runs: what stands before is the JVM's. None where they cannot be read."""
    try:
        command = processes.read(process.pid, "cmdline").split("\0")
        return command[command.index(process.name) + 1 :] if process.is_java else []
    except (OSError, ValueError):
        return []


def _environment(pid: int, name: str) -> str | None:
    try:
        entries = processes.read(pid, "environ").split("\0")
    except OSError:
        return None
    return next((entry.partition("=")[2] for entry in entries if entry.startswith(f"{name}=")), None)


def _configurations(pid: int, folder: str | None, properties: Mapping[str, str]) -> "Iterator[HighAvailability]":
    """What it may go by: without a file that can be read, the properties alone, where they say enough."""
    texts = dict(_texts(pid, folder)) if folder else {}
    if not texts and not properties:
        return
    from sidecar.settings.cluster.flink_conf import LEGACY, high_availability  # noqa: PLC0415
    from sidecar.settings.file.settings_error import SettingsError  # noqa: PLC0415  large; see the module

    for name, text in (texts or {LEGACY: ""}).items():
        try:
            said = high_availability(Path(name), text, properties)
        except (SettingsError, RecursionError):
            continue
        if texts or said.mode not in _WITHOUT_LEADERS:
            yield said


def _texts(pid: int, folder: str) -> Iterable[tuple[str, str]]:
    # An absolute link is followed from our root, not from that of the process: then nothing, or a file of ours, is compared.
    base = f"root{folder}" if folder.startswith("/") else f"cwd/{folder}"
    for name in _FILES:
        try:
            yield name, processes.read(pid, f"{base}/{name}")
        except (OSError, ValueError):
            continue


def _compare(said: "HighAvailability", cluster: Mapping[str, str]) -> Owner:
    options = {name: given.text for name, given in said.options.items()}
    if said.mode not in {"ZOOKEEPER", "KUBERNETES"}:
        return Owner.OTHER if said.mode in _WITHOUT_LEADERS else Owner.UNKNOWN
    if said.mode.lower() != cluster["store"]:
        return Owner.OTHER
    if said.mode == "ZOOKEEPER":
        return _compare_zookeeper(options, cluster)
    if "cluster_id" not in options:
        return Owner.UNKNOWN
    same = all(options[name] == cluster[name] for name in ("cluster_id", "namespace"))
    return Owner.OURS if same else Owner.OTHER


def _compare_zookeeper(options: Mapping[str, str], cluster: Mapping[str, str]) -> Owner:
    from sidecar.core.flink.znode_paths import namespace  # noqa: PLC0415  large; see the module
    from sidecar.settings.file import schema  # noqa: PLC0415

    if "zookeeper" not in options:
        return Owner.UNKNOWN
    known = {**schema.ZOOKEEPER, **options}
    servers, _, chroot = "".join(options["zookeeper"].split()).partition("/")
    our_servers, _, our_chroot = cluster["quorum"].partition("/")
    place = namespace(known["root"] or "", known["cluster_id"] or "")
    if (chroot, place) != (our_chroot, cluster["namespace"]):
        return Owner.OTHER
    # One server in common is enough: each may be given another part of the ensemble.
    return Owner.OURS if set(servers.split(",")) & set(our_servers.split(",")) else Owner.OTHER
