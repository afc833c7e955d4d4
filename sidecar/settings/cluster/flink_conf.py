"""The high-availability options of Flink's own configuration, read as Flink reads them.

`config.yaml` (YAML, nested or flat; since 1.19) and `flink-conf.yaml` (lines, not YAML; up to 1.20). Dynamic properties (`-D…`) are in no
file, so the folder does not show them.
"""

import codecs
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.core.bounds import FLINK_CONF
from sidecar.core.ha.finding import UnknownFact
from sidecar.core.ha.flink_checks import OPTIONS, FlinkFacts
from sidecar.core.sanitize import clean
from sidecar.settings.cluster.stores import ZooKeeperSettings
from sidecar.settings.file.durations import format_duration, parse_flink_duration
from sidecar.settings.file.key import keys_of
from sidecar.settings.file.section import ListNode, MappingNode, ScalarNode
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import NO_VALUE, SettingsError

_PART: Final = (
    r"""\s*(?:'(?P<single>(?:[^']|'')*)'|"(?P<double>(?:[^"]|"")*)"|(?P<bare>[^\s'"{0}][^{0}]*))\s*(?:{0}|$)"""
)
_ITEM = re.compile(_PART.format(","))
_HALF = re.compile(_PART.format(":"))


def parse_flink_map(text: str, *, yaml: bool) -> dict[str, str]:
    """Mirrors `ConfigurationUtils.convertToProperties`: parts may be quoted, with doubled quotes inside. `yaml`: try YAML first.

    Raises ValueError without the text, which holds secrets.
    """
    if yaml and (entries := _yaml(text)) is not None:
        return entries
    entries = {}
    for item in _split(_ITEM, text):
        halves = _split(_HALF, item)
        if len(halves) != 2 or halves[0] in entries:
            raise ValueError
        entries[halves[0]] = halves[1]
    return entries


def _yaml(text: str) -> dict[str, str] | None:
    from sidecar.settings.file.yaml_document import parse  # noqa: PLC0415  imports ruamel.yaml

    with suppress(SettingsError):
        entries = parse(text, "").entries
        texts = {key: node.text for key, node in entries.items() if isinstance(node, ScalarNode) and not node.empty}
        if len(texts) < len(entries):
            raise ValueError
        return texts
    return None


def _split(part: re.Pattern[str], text: str) -> list[str]:
    """Mirrors `StructuredOptionsSplitter.splitEscaped`."""
    parts, at = [], 0
    while at < len(text):
        match = part.match(text, at)
        if match is None:
            raise ValueError
        single, double, bare = match.group("single", "double", "bare")
        parts.append(bare.strip() if bare is not None else _unquoted(single, double))
        at = match.end()
    return parts


def _unquoted(single: str | None, double: str | None) -> str:
    return single.replace("''", "'") if single is not None else (double or "").replace('""', '"')


STANDARD: Final = "config.yaml"
LEGACY: Final = "flink-conf.yaml"

_JAVA_BLANKS: Final = "".join(map(chr, range(33)))
_BYTE_ORDER_MARK: Final = "\ufeff"
_REPLACEMENT: Final = "\ufffd"
_MARKED: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks by which Flink's YAML reader knows an encoding."""
_NUMBER = re.compile(r"[-+]?(0o[0-7]+|0x[0-9a-fA-F]+|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))")
_KEPT_NUMBER = re.compile(r"0|-?[1-9][0-9]*")

_log = logging.getLogger(__name__)


class _Entry(NamedTuple):
    text: str
    line: int
    rewritten: bool = False
    """Whether Flink parses a number and writes it differently: `0123` becomes `123`, `1e3` becomes `1000.0`."""


def _unchanged(value: _Entry) -> str:
    return value.text


def _name(value: _Entry) -> str:
    if value.rewritten:
        raise ValueError("is a number to Flink, which rewrites it: put it in quotes, or name the cluster yourself")
    return value.text


def _timeout(value: _Entry) -> str:
    return format_duration(parse_flink_duration(value.text))


def _flag(value: _Entry) -> str:
    if value.text.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return value.text.lower()


class _Option(NamedTuple):
    """Flink's keys in the order in which Flink reads them, deprecated ones last, and the conversion to the text of our configuration."""

    keys: tuple[str, ...]
    ours: Callable[[_Entry], str]
    takes_quotes: bool = False
    """Whether Flink runs with quotes in the value, where the format of the file gives them no meaning."""


_TYPE: Final = _Option(("high-availability.type", "recovery.mode", "high-availability"), _unchanged)


def _renamed(name: str, ours: Callable[[_Entry], str], *, takes_quotes: bool = False) -> _Option:
    return _Option((f"high-availability.{name}", f"recovery.{name}"), ours, takes_quotes)


_ZOOKEEPER: Final[Mapping[str, _Option]] = {
    "zookeeper": _renamed("zookeeper.quorum", _unchanged),
    "root": _renamed("zookeeper.path.root", _name, takes_quotes=True),
    "cluster_id": _Option(
        ("high-availability.cluster-id", *_renamed("zookeeper.path.namespace", _name).keys), _name, takes_quotes=True
    ),
    "session_timeout": _renamed("zookeeper.client.session-timeout", _timeout),
    "connection_timeout": _renamed("zookeeper.client.connection-timeout", _timeout),
    "tolerate_suspended_connections": _Option(
        ("high-availability.zookeeper.client.tolerate-suspended-connections",), _flag
    ),
    "acl": _Option(("high-availability.zookeeper.client.acl",), _unchanged),
}
_AUTHORIZATION: Final = "high-availability.zookeeper.client.authorization"
"""A map. Its entries may also have keys of their own, `_AUTHORIZATION.digest`; the map has precedence."""
_KUBERNETES: Final[Mapping[str, _Option]] = {
    "cluster_id": _Option(("kubernetes.cluster-id",), _name),
    "namespace": _Option(("kubernetes.namespace",), _name),
    "kubeconfig": _Option(("kubernetes.config.file",), _unchanged),
    "context": _Option(("kubernetes.context",), _name),
}
_NAMESPACE: Final = "default"
"""Flink's own default: Flink reads the namespace of neither the kubeconfig nor the service account."""
DEFAULTS: Final = {name: declared.key.default for name, declared in keys_of(ZooKeeperSettings).items()}
"""The defaults of `zookeeper`, which are Flink's."""
_KEYS: Final = frozenset(
    key for option in (_TYPE, *_ZOOKEEPER.values(), *_KUBERNETES.values()) for key in option.keys
) | {_AUTHORIZATION}
_KUBERNETES_FACTORY: Final = ".KUBERNETESHASERVICESFACTORY"


def configurations(conf_dir: Setting) -> list[Path]:
    """Flink's configuration files in a folder; empty if there is no such folder. Raises SettingsError: the folder is not accessible."""
    folder = conf_dir.path()
    try:
        return [folder / name for name in (STANDARD, LEGACY) if (folder / name).exists()]
    except OSError as error:
        raise conf_dir.error(f"{folder} is not accessible: {error.strerror}") from error


def read_flink_conf(conf_dir: Setting) -> Mapping[str, Setting]:
    """The options of Flink's configuration in a folder: `zookeeper` (the quorum), other keys of `_ZOOKEEPER`, `authorization.SCHEME`;
    or `kubernetes` (a location only) and keys of `_KUBERNETES`.

    The values are in the form of our own configuration. Raises SettingsError: no folder, no configuration, two that disagree, an
    unreadable file, a value that Flink does not accept, no high availability or an unknown kind of it.
    """
    folder = conf_dir.path()
    files = [high_availability(path, read_configuration(path), {}) for path in configurations(conf_dir)]
    if not files and not folder.is_dir():
        raise conf_dir.error(f"there is no folder {folder}: give the one that holds Flink's {STANDARD} or {LEGACY}")
    if not files:
        raise conf_dir.error(f"{folder} holds neither {STANDARD} nor {LEGACY}: give Flink's configuration folder")
    if len(files) > 1 and files[0].meaning() != files[1].meaning():
        raise conf_dir.error(
            f"{STANDARD} and {LEGACY} in {folder} disagree about high availability, and Flink's version decides which "
            "one it reads: remove one, or give --zookeeper (with --root and --cluster-id) or --kubernetes instead"
        )
    files[0].demand_store()
    return files[0].options


class HighAvailability(NamedTuple):
    """The options of one file. `mode`: Flink's `high-availability.type` in upper case; `options`: the keys of `read_flink_conf`."""

    path: Path
    mode: str
    options: Mapping[str, Setting]
    kind: Setting | None = None
    """`mode` as it is written; None: it is not."""

    def meaning(self) -> tuple[str, dict[str, str | None]]:
        """Equal for two files that agree."""
        options = {name: value.text for name, value in self.options.items() if name not in {"acl", "kubernetes"}}
        return self.mode, {**DEFAULTS, **options}

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
            case _ if self.kind and self.mode not in {"ZOOKEEPER", "KUBERNETES"}:
                raise self.kind.invalid(f"is a custom factory class, and its leader store is not known: {instead}")


def read_configuration(path: Path) -> str:
    """The text of Flink's configuration `path`, decoded as Flink decodes it. Raises SettingsError: Flink cannot read it either, or it is
    too large.
    """
    from sidecar.settings.file.yaml_document import decoded, read_bytes  # noqa: PLC0415  imports ruamel.yaml

    content = read_bytes(path, FLINK_CONF)
    if path.name == LEGACY:  # with its byte order mark
        text = content.decode("utf-8", errors="replace")
        if (at := text.find(_REPLACEMENT)) >= 0 and _REPLACEMENT.encode() not in content:
            line = text.count("\n", 0, at) + 1
            _log.warning(
                "%s:%d: is not UTF-8 text, read as Flink reads it: with %s for what is not", path, line, _REPLACEMENT
            )
        return text
    for mark, encoding in _MARKED:
        if content.startswith(mark):
            return content.decode(encoding, errors="replace")
    return decoded(content, path)


def high_availability(path: Path, text: str, properties: Mapping[str, str]) -> HighAvailability:
    """The options of Flink's configuration `path` with the content `text`, overridden by dynamic properties.

    Raises SettingsError: not a configuration, or a value that Flink does not accept.
    """
    entries = _lines(text, path) if path.name == LEGACY else _nested(text, path)
    values = {key: value for key, value in entries if key in _KEYS or key.startswith(f"{_AUTHORIZATION}.")}
    values |= {key: _Entry(value, 0) for key, value in properties.items() if key in _KEYS}
    kind = _options({"type": _TYPE}, values, path).get("type")
    mode = kind.text.upper() if kind else "NONE"
    if kind and (mode == "KUBERNETES" or mode.endswith(_KUBERNETES_FACTORY)):
        namespace = Setting(_NAMESPACE, f"{path}: Flink's default of kubernetes.namespace")
        options = {"kubernetes": kind, "namespace": namespace} | _options(_KUBERNETES, values, path)
        return HighAvailability(path, "KUBERNETES", options, kind)
    return HighAvailability(path, mode, _options(_ZOOKEEPER, values, path) | _authorization(values, path), kind)


def plain_options(path: Path, text: str) -> dict[str, str]:
    """All options of Flink's configuration `path` with the content `text`. Values may be secrets. Raises SettingsError."""
    return {key: value.text for key, value in (_lines(text, path) if path.name == LEGACY else _nested(text, path))}


def _options(options: Mapping[str, _Option], values: Mapping[str, _Entry], path: Path) -> dict[str, Setting]:
    ours = {}
    for name, option in options.items():
        key = next((key for key in option.keys if key in values), None)
        if key is not None:
            entry = values[key]
            setting = Setting(entry.text, f"{path}:{entry.line}: {key}")
            if path.name == LEGACY and not {*entry.text[:1], *entry.text[-1:]}.isdisjoint("\"'"):
                _check_quotes(setting, takes_quotes=option.takes_quotes)
            try:
                ours[name] = Setting(option.ours(entry), setting.location, setting.written)
            except ValueError as error:
                raise setting.invalid(str(error)) from error
    return ours


def _check_quotes(setting: Setting, *, takes_quotes: bool) -> None:
    problem = f"has quotes, which are a part of the value in {LEGACY}"
    if not takes_quotes:
        raise setting.invalid(f"{problem}: remove them")
    _log.warning("%s: the value %s, for Flink too", setting.location, problem)


def _authorization(values: Mapping[str, _Entry], path: Path) -> dict[str, Setting]:
    """`authorization.SCHEME`. The values are secrets, so errors do not show them."""
    whole = values.get(_AUTHORIZATION)
    if whole is None:
        entries = {key.removeprefix(f"{_AUTHORIZATION}."): value for key, value in values.items() if key not in _KEYS}
    else:
        try:
            texts = parse_flink_map(whole.text, yaml=path.name == STANDARD)
        except ValueError:
            raise SettingsError(
                f"{path}:{whole.line}: {_AUTHORIZATION} is not a map: write it like digest:'user:password'"
            ) from None
        entries = {scheme: whole._replace(text=text) for scheme, text in texts.items()}
    return {
        f"authorization.{scheme}": Setting(value.text, f"{path}:{value.line}: {_AUTHORIZATION}", source="")
        for scheme, value in entries.items()
    }


def _lines(text: str, path: Path) -> Iterator[tuple[str, _Entry]]:
    """`flink-conf.yaml`: one `key: value` per line, `#` begins a comment anywhere, quotes have no meaning, the last duplicate wins."""
    marked, _, _ = text.removeprefix(_BYTE_ORDER_MARK).partition(":")
    if text.startswith(_BYTE_ORDER_MARK) and (key := marked.strip(_JAVA_BLANKS)) in _KEYS:
        raise SettingsError(
            f"{path}:1: the file begins with a byte order mark, which is a part of the first key to Flink, so Flink does "
            f"not read {key}: save the file without it"
        )
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        content = line.split("#", 1)[0]
        key, _, value = (part.strip(_JAVA_BLANKS) for part in content.partition(": "))
        if key and value:
            yield key, _Entry(value, number)
        elif key or value:
            _log.warning('%s:%d: is not "key: value", ignored as Flink ignores it', path, number)


def _nested(text: str, path: Path) -> Iterator[tuple[str, _Entry]]:
    from sidecar.settings.file.yaml_document import parse  # noqa: PLC0415  imports ruamel.yaml

    return _flat(parse(text, str(path), FLINK_CONF, shared=True), path, "", iter(range(FLINK_CONF.most_items)))


def _flat(table: MappingNode, path: Path, prefix: str, left: Iterator[int]) -> Iterator[tuple[str, _Entry]]:
    """`config.yaml`: keys joined by dots. If a key is both nested and flat, the last wins. `<<` is a key like others, to Flink too.

    `left`: one for each key that may still be read, because aliases make many of few.
    """
    for name, node in table.entries.items():
        if next(left, None) is None:
            raise SettingsError(
                f"{path}: its YAML aliases stand for more than {FLINK_CONF.most_items} keys: write fewer"
            )
        key = f"{prefix}{name}"
        match node:
            case MappingNode():
                yield from _flat(node, path, f"{key}.", left)
            case ScalarNode(text=text) if not node.empty:
                rewritten = node.plain and bool(_NUMBER.fullmatch(text)) and not _KEPT_NUMBER.fullmatch(text)
                yield key, _Entry(text, node.line, rewritten)
            case _ if key in _KEYS:
                problem = "must be a single value" if isinstance(node, ListNode) else NO_VALUE
                raise SettingsError(f"{path}:{table.lines[name]}: {key} {problem}")


_MASTERS: Final = "masters"
_UNTOUCHED: Final = ["localhost:8081"]
"""The content of the file as Flink ships it, in its image too: it says nothing about a cluster that is not started by it."""
_MOST_BYTES: Final = 64 << 10
_NOT_READ: Final = UnknownFact(
    "Flink's configuration was not read: give --flink-conf, or flink_conf_dir in the configuration"
)


def read_flink_facts(folder: Path | None, contenders: int | UnknownFact | None) -> FlinkFacts:
    """The facts of the folder. `contenders`: JobManagers that contend for leadership; None: the file `masters` says nothing of them."""
    masters = None if folder is None or contenders is None else _masters(folder)
    return FlinkFacts(
        options=_NOT_READ if folder is None else _judged_options(folder),
        masters=masters,
        contenders=_NOT_READ if contenders is None else contenders,
    )


def _judged_options(folder: Path) -> dict[str, str] | UnknownFact:
    """The options that are judged. All others are left out, since they may be secrets."""
    path = next((folder / name for name in (STANDARD, LEGACY) if (folder / name).exists()), folder / STANDARD)
    try:
        options = plain_options(path, read_configuration(path))
    except (SettingsError, OSError) as error:
        return UnknownFact(clean(error))
    values = {name: next((options[key] for key in keys if key in options), None) for name, keys in OPTIONS.items()}
    return {name: value for name, value in values.items() if value is not None}


def _masters(folder: Path) -> int | UnknownFact | None:
    try:
        with (folder / _MASTERS).open("rb") as file:
            text = file.read(_MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return UnknownFact(f"{folder / _MASTERS} cannot be read: {error.strerror}")
    lines = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    return None if lines == _UNTOUCHED else len(lines)
