"""Decides which cluster a Flink process belongs to, by its command line, environment and configuration.

These hold secrets: only the answer leaves this module. Large imports are made only when there is a configuration to parse.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.host import processes
from sidecar.host.processes import FlinkProcess

if TYPE_CHECKING:
    from sidecar.settings import ClusterSettings
    from sidecar.settings.cluster.flink_conf import HighAvailability

_CONF_DIR: Final = "FLINK_CONF_DIR"
_FILES: Final = ("config.yaml", "flink-conf.yaml")
"""The names of Flink's configuration file. Its version decides which one Flink reads."""
_WITHOUT_LEADERS: Final = frozenset({"NONE", "STANDALONE"})


class Owner(Enum):
    """Whose a process is."""

    OURS = "ours"
    OTHER = "other"
    """Certainly another cluster's."""
    UNKNOWN = "unknown"


class VisibleProcesses(NamedTuple):
    """The processes that may be captured, and how many may not."""

    ours: list[FlinkProcess]
    others: int = 0
    """The number of processes of another cluster."""
    unknown: int = 0
    """The number of processes whose owner is unknown, where another cluster's processes are visible too."""


def identity(cluster: "ClusterSettings") -> dict[str, str]:
    """The values that distinguish the cluster from others, as strings for the capturing process. Holds no secret."""
    values = {name: getattr(cluster, name, None) for name in ("quorum", "namespace", "cluster_id")}
    return {"store": cluster.store.value} | {name: value for name, value in values.items() if value is not None}


def select(processes: Sequence[FlinkProcess], cluster: Mapping[str, str] | None) -> VisibleProcesses:
    """The processes that may be captured for the cluster with this `identity`; None: all.

    A process of unknown owner counts as ours while no other cluster's process is visible, as in a pod.
    """
    if cluster is None:
        return VisibleProcesses(list(processes))
    owners: dict[int, Owner] = {}
    for process in processes:  # JVMs come first
        master = process.works_for
        owners[process.pid] = owners[master] if master in owners else owner(process, cluster)
    count = list(owners.values()).count
    shared = bool(count(Owner.OTHER))
    chosen = {Owner.OURS} if shared else {Owner.OURS, Owner.UNKNOWN}
    ours = [process for process in processes if owners[process.pid] in chosen]
    return VisibleProcesses(ours, count(Owner.OTHER), count(Owner.UNKNOWN) if shared else 0)


def owner(process: FlinkProcess, cluster: Mapping[str, str]) -> Owner:
    """Whose it is, for the cluster with this `identity`."""
    folder, properties = _options(process)
    owners = {_compare(configuration, cluster) for configuration in _configurations(process.pid, folder, properties)}
    if Owner.OURS in owners:
        return Owner.OURS
    return owners.pop() if len(owners) == 1 else Owner.UNKNOWN


def _options(process: FlinkProcess) -> tuple[str | None, dict[str, str]]:
    """Flink's configuration folder, and the dynamic properties (`-Dkey=value`)."""
    folder, properties = None, {}
    arguments = iter(_arguments(process))
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == "--configDir":
            folder = value if equals else next(arguments, None)
        elif argument == "-c":  # for Flink's client this is a class
            folder = value if "/" in (value := next(arguments, "")) else folder
        elif argument.startswith("-D"):
            key, equals, value = (argument[2:] or next(arguments, "")).partition("=")
            if equals:
                properties[key] = value
    return folder or _environment(process.pid, _CONF_DIR), properties


def _arguments(process: FlinkProcess) -> list[str]:
    """The arguments of the JVM's main class. Empty where they cannot be read."""
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
    """The configurations that may apply. Without a readable file: the properties alone, if they name a store."""
    texts = dict(_texts(pid, folder)) if folder else {}
    if not texts and not properties:
        return
    from sidecar.settings.cluster.flink_conf import LEGACY, high_availability  # noqa: PLC0415
    from sidecar.settings.file.settings_error import SettingsError  # noqa: PLC0415  large; see the module

    for name, text in (texts or {LEGACY: ""}).items():
        try:
            configuration = high_availability(Path(name), text, properties)
        except (SettingsError, RecursionError):
            continue
        if texts or configuration.mode not in _WITHOUT_LEADERS:
            yield configuration


def _texts(pid: int, folder: str) -> Iterable[tuple[str, str]]:
    # The kernel resolves an absolute link from our root, not the process's: then nothing, or a file of ours, is compared.
    base = f"root{folder}" if folder.startswith("/") else f"cwd/{folder}"
    for name in _FILES:
        try:
            yield name, processes.read(pid, f"{base}/{name}")
        except (OSError, ValueError):
            continue


def _compare(configuration: "HighAvailability", cluster: Mapping[str, str]) -> Owner:
    options = {name: setting.text for name, setting in configuration.options.items()}
    mode = configuration.mode
    match mode:
        case "ZOOKEEPER" | "KUBERNETES" if mode.lower() != cluster["store"]:
            return Owner.OTHER
        case "ZOOKEEPER":
            return _compare_zookeeper(options, cluster)
        case "KUBERNETES" if "cluster_id" in options:
            same = all(options[name] == cluster[name] for name in ("cluster_id", "namespace"))
            return Owner.OURS if same else Owner.OTHER
        case _:
            return Owner.OTHER if mode in _WITHOUT_LEADERS else Owner.UNKNOWN


def _compare_zookeeper(options: Mapping[str, str], cluster: Mapping[str, str]) -> Owner:
    from sidecar.core.flink.znode_paths import namespace  # noqa: PLC0415  large; see the module
    from sidecar.settings.cluster.flink_conf import DEFAULTS  # noqa: PLC0415

    if "zookeeper" not in options:
        return Owner.UNKNOWN
    values = {**DEFAULTS, **options}
    servers, _, chroot = "".join(options["zookeeper"].split()).partition("/")
    our_servers, _, our_chroot = cluster["quorum"].partition("/")
    path = namespace(values["root"] or "", values["cluster_id"] or "")
    if (chroot, path) != (our_chroot, cluster["namespace"]):
        return Owner.OTHER
    # One common server is enough: each configuration may list a different part of the ensemble.
    return Owner.OURS if set(servers.split(",")) & set(our_servers.split(",")) else Owner.OTHER
