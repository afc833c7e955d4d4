"""What Flink's own configuration says of its high availability, read as Flink reads it.

`config.yaml` (YAML, nested or flat; since 1.19) and `flink-conf.yaml` (a line parser that is no YAML; up to 1.20). What Flink is told by
dynamic properties (`-D…`) stands in no file and is not seen.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.settings.cluster.flink_map import parse_flink_map
from sidecar.settings.file import schema
from sidecar.settings.file.durations import format_duration, parse_flink_duration
from sidecar.settings.file.errors import SettingsError
from sidecar.settings.file.nodes import Scalar, Table
from sidecar.settings.file.value import Given

STANDARD: Final = "config.yaml"
LEGACY: Final = "flink-conf.yaml"

_JAVA_BLANKS: Final = "".join(map(chr, range(33)))
_NUMBER = re.compile(r"[-+]?(0o[0-7]+|0x[0-9a-fA-F]+|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))")
_KEPT_NUMBER = re.compile(r"0|-?[1-9][0-9]*")

_log = logging.getLogger(__name__)


class _Value(NamedTuple):
    text: str
    line: int
    rewritten: bool = False
    """Whether Flink takes it for a number and writes it in another way: `0123` becomes `123`, `1e3` becomes `1000.0`."""


def _as_is(value: _Value) -> str:
    return value.text


def _name(value: _Value) -> str:
    if value.rewritten:
        raise ValueError(
            "is a number to Flink, which writes it in another way: put it in quotes, or name the cluster yourself"
        )
    return value.text


def _timeout(value: _Value) -> str:
    return format_duration(parse_flink_duration(value.text))


def _flag(value: _Value) -> str:
    if value.text.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return value.text.lower()


class _Option(NamedTuple):
    """Flink's keys, the current one first and then the deprecated ones in the order in which Flink asks them, and our way to write it."""

    keys: tuple[str, ...]
    ours: Callable[[_Value], str]


_TYPE: Final = _Option(("high-availability.type", "recovery.mode", "high-availability"), _as_is)
_ZOOKEEPER: Final[Mapping[str, _Option]] = {
    "zookeeper": _Option(("high-availability.zookeeper.quorum", "recovery.zookeeper.quorum"), _as_is),
    "root": _Option(("high-availability.zookeeper.path.root", "recovery.zookeeper.path.root"), _name),
    "cluster_id": _Option(
        (
            "high-availability.cluster-id",
            "high-availability.zookeeper.path.namespace",
            "recovery.zookeeper.path.namespace",
        ),
        _name,
    ),
    "session_timeout": _Option(
        ("high-availability.zookeeper.client.session-timeout", "recovery.zookeeper.client.session-timeout"), _timeout
    ),
    "connection_timeout": _Option(
        ("high-availability.zookeeper.client.connection-timeout", "recovery.zookeeper.client.connection-timeout"),
        _timeout,
    ),
    "tolerate_suspended_connections": _Option(
        ("high-availability.zookeeper.client.tolerate-suspended-connections",), _flag
    ),
    "acl": _Option(("high-availability.zookeeper.client.acl",), _as_is),
}
_AUTHORIZATION: Final = "high-availability.zookeeper.client.authorization"
"""A map: its entries may also stand under keys of their own, `_AUTHORIZATION.digest`; the map itself has precedence."""
_KUBERNETES: Final[Mapping[str, _Option]] = {
    "cluster_id": _Option(("kubernetes.cluster-id",), _name),
    "namespace": _Option(("kubernetes.namespace",), _name),
    "kubeconfig": _Option(("kubernetes.config.file",), _as_is),
    "context": _Option(("kubernetes.context",), _name),
}
_NAMESPACE: Final = "default"
"""Flink's own default: it asks neither the kubeconfig nor the service account."""
_KEYS: Final = frozenset(
    key for option in (_TYPE, *_ZOOKEEPER.values(), *_KUBERNETES.values()) for key in option.keys
) | {_AUTHORIZATION}
_KUBERNETES_FACTORY: Final = ".KUBERNETESHASERVICESFACTORY"


def configurations(conf_dir: Given) -> list[Path]:
    """Flink's configuration files in that folder; none where there is no such folder. Raises SettingsError: it cannot be looked at."""
    folder = conf_dir.path()
    try:
        return [folder / name for name in (STANDARD, LEGACY) if (folder / name).exists()]
    except OSError as error:
        raise conf_dir.error(f"{folder} cannot be looked at: {error.strerror}") from error


def read_flink_conf(conf_dir: Given) -> Mapping[str, Given]:
    """What Flink's configuration in that folder says: `zookeeper` (the quorum) and, where it says so, the other keys of `_ZOOKEEPER`
    and `authorization.SCHEME`; or `kubernetes` (the place that says so alone) and the keys of `_KUBERNETES`.

    The values are written as in our own configuration. Raises SettingsError: no folder, no configuration in it, two that disagree,
    unreadable, a value that Flink does not take, no high availability, or of an unknown kind.
    """
    folder = conf_dir.path()
    files = [_read(path) for path in configurations(conf_dir)]
    if not files and not folder.is_dir():
        raise conf_dir.error(f"there is no folder {folder}: give the one that holds Flink's {STANDARD} or {LEGACY}")
    if not files:
        raise conf_dir.error(f"{folder} holds neither {STANDARD} nor {LEGACY}: give Flink's configuration folder")
    if len(files) > 1 and files[0].meaning() != files[1].meaning():
        raise conf_dir.error(
            f"{STANDARD} and {LEGACY} in {folder} disagree about high availability, and it depends on Flink's version which "
            "one it reads: remove one, or give --zookeeper (with --root and --cluster-id) or --kubernetes instead"
        )
    files[0].demand_store()
    return files[0].options


class HighAvailability(NamedTuple):
    """What one file says: `mode` is Flink's `high-availability.type` in capitals, `options` has the keys of `read_flink_conf`."""

    path: Path
    mode: str
    options: Mapping[str, Given]

    def meaning(self) -> tuple[str, dict[str, str | None]]:
        """What two files must have in common to agree."""
        options = {name: value.text for name, value in self.options.items() if name not in {"acl", "kubernetes"}}
        return self.mode, {**schema.ZOOKEEPER.defaults, **options}

    def demand_store(self) -> None:
        key = f"{self.path}: {_TYPE.keys[0]}"
        instead = "name the cluster with --zookeeper or --kubernetes if it runs elsewhere"
        match self.mode:
            case "NONE" | "STANDALONE":
                raise SettingsError(
                    f"{key} is NONE or not set: a Flink cluster without high availability has no leader to watch: "
                    f"set it to zookeeper or kubernetes, or {instead}"
                )
            case "ZOOKEEPER" if "zookeeper" not in self.options:
                raise SettingsError(f"{self.path}: {_ZOOKEEPER['zookeeper'].keys[0]} is missing: set it, or {instead}")
            case "ZOOKEEPER" | "KUBERNETES":
                return
        raise SettingsError(
            f"{key} names a factory class of its own, and where that keeps leaders is not known: {instead}"
        )


def _read(path: Path) -> HighAvailability:
    from sidecar.settings.file.document import read_text  # noqa: PLC0415  imports ruamel.yaml

    return high_availability(path, read_text(path), {})


def high_availability(path: Path, text: str, properties: Mapping[str, str]) -> HighAvailability:
    """What Flink's configuration `path`, whose content is `text`, says, where Flink was also given these dynamic properties.

    Raises SettingsError: it is none, or has a value that Flink does not take.
    """
    entries = _lines(text, path) if path.name == LEGACY else _nested(text, path)
    values = {key: value for key, value in entries if key in _KEYS or key.startswith(f"{_AUTHORIZATION}.")}
    values |= {key: _Value(value, 0) for key, value in properties.items() if key in _KEYS}
    given = _option(_TYPE, values, path)
    mode = given.text.upper() if given else "NONE"
    if given and (mode == "KUBERNETES" or mode.endswith(_KUBERNETES_FACTORY)):
        namespace = Given(_NAMESPACE, _NAMESPACE, f"{path}: Flink's default of kubernetes.namespace")
        options = {"kubernetes": given, "namespace": namespace} | _options(_KUBERNETES, values, path)
        return HighAvailability(path, "KUBERNETES", options)
    return HighAvailability(path, mode, _options(_ZOOKEEPER, values, path) | _authorization(values, path))


def _options(options: Mapping[str, _Option], values: Mapping[str, _Value], path: Path) -> dict[str, Given]:
    found = {name: _option(option, values, path) for name, option in options.items()}
    return {name: given for name, given in found.items() if given is not None}


def _option(option: _Option, values: Mapping[str, _Value], path: Path) -> Given | None:
    key = next((key for key in option.keys if key in values), None)
    if key is None:
        return None
    value = values[key]
    given = Given(value.text, value.text, f"{path}:{value.line}: {key}")
    try:
        return Given(option.ours(value), given.written, given.where)
    except ValueError as error:
        raise given.wrong(str(error)) from error


def _authorization(values: Mapping[str, _Value], path: Path) -> dict[str, Given]:
    """`authorization.SCHEME`; secrets, so what is written is nowhere shown."""
    whole = values.get(_AUTHORIZATION)
    if whole is None:
        entries = {key.removeprefix(f"{_AUTHORIZATION}."): value for key, value in values.items() if key not in _KEYS}
    else:
        try:
            found = parse_flink_map(whole.text, yaml=path.name == STANDARD)
        except ValueError:
            raise SettingsError(
                f"{path}:{whole.line}: {_AUTHORIZATION} is no map: write it like digest:'user:password'"
            ) from None
        entries = {scheme: whole._replace(text=text) for scheme, text in found.items()}
    return {
        f"authorization.{scheme}": Given(value.text, "", f"{path}:{value.line}: {_AUTHORIZATION}")
        for scheme, value in entries.items()
    }


def _lines(text: str, path: Path) -> Iterator[tuple[str, _Value]]:
    """`flink-conf.yaml`: one `key: value` a line, `#` begins a comment anywhere, quotes mean nothing, the last of two wins."""
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        content = line.split("#", 1)[0]
        key, _, value = (part.strip(_JAVA_BLANKS) for part in content.partition(": "))
        if key and value:
            yield key, _Value(value, number)
        elif key or value:
            _log.warning('%s:%d: is no "key: value", ignored as Flink ignores it', path, number)


def _nested(text: str, path: Path) -> Iterator[tuple[str, _Value]]:
    from sidecar.settings.file.document import parse  # noqa: PLC0415  imports ruamel.yaml

    return _flat(parse(text, str(path)), path)


def _flat(table: Table, path: Path, prefix: str = "") -> Iterator[tuple[str, _Value]]:
    """`config.yaml`: keys joined by dots; of a key that stands both nested and flat, the last wins."""
    for name, node in table.entries.items():
        key = f"{prefix}{name}"
        match node:
            case Table():
                yield from _flat(node, path, f"{key}.")
            case Scalar(text=text) if not node.empty:
                rewritten = node.plain and bool(_NUMBER.fullmatch(text)) and not _KEPT_NUMBER.fullmatch(text)
                yield key, _Value(text, node.line, rewritten)
            case _ if key in _KEYS:
                raise SettingsError(f"{path}:{node.line}: {key} must be a single value")
