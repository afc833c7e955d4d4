"""All mistakes of a configuration, for `config check` and `rules check`.

Reading a configuration ends at its first mistake. Here that one is taken out of what was read, and the rest is read again, until nothing is
wrong: each check is written once, and no mistake hides the next one.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from sidecar.settings.alerting.receivers import UNUSED_URL
from sidecar.settings.alerting.routes import label_values, matchers, no_rule_has
from sidecar.settings.file.key import Keys, keys_of
from sidecar.settings.file.section import (
    GONE,
    ListNode,
    MappingNode,
    Node,
    ScalarNode,
    Section,
    file_section,
    read_nodes,
)
from sidecar.settings.file.setting import CLUSTER_OVERRIDES, overrides_of
from sidecar.settings.file.settings_error import SettingPlace, SettingsError
from sidecar.settings.loader import CONFIG, ClusterKeys, load, rules_in
from sidecar.settings.model import Alerting, Settings

MOST: Final = 100
"""Mistakes that are looked for."""
_STAND_IN: Final = {"zookeeper": "127.0.0.1", "observer": "unknown"}
"""Read in place of a cluster, or of our name, that cannot be found out, so that the rest is checked too."""
_NAMED: Final[Mapping[str, tuple[str, str, Node]]] = {
    "receivers": ("name", "urls", ListNode((ScalarNode(UNUSED_URL, 0, plain=False),), 0)),
    "rules": ("alert", "on", ScalarNode("vacant", 0, plain=False)),
}
"""Lists whose entries are named elsewhere: the key of the name, and what an entry needs besides."""
_CLUSTER: Final = frozenset({*keys_of(ClusterKeys), "clusters"})
_LINE: Final = re.compile(r"(?P<file>.*?):(?P<line>\d+): ")

T = TypeVar("T")


class CheckedConfiguration(NamedTuple):
    """The settings of a configuration without its mistakes, and the mistakes."""

    settings: Settings | None
    """None: too little is left."""
    mistakes: list[SettingsError]
    state_dir: str
    """The place where `state_dir` is set."""


def sorted_mistakes(mistakes: Iterable[SettingsError]) -> list[SettingsError]:
    """Mistakes by file and line; those without come first."""

    def order(error: SettingsError) -> tuple[str, int]:
        at = _LINE.match(str(error))
        return (at["file"], int(at["line"])) if at else ("", 0)

    return sorted(mistakes, key=order)


def check(config: Path | None, overrides: Mapping[str, object]) -> CheckedConfiguration:
    """The settings that `load` would read if nothing were wrong, and everything that is."""
    draft = _Draft()
    settings = draft.complete(lambda: load(config, overrides, read=draft.read))
    if settings is None:
        line = {name: value for name, value in overrides.items() if name not in CLUSTER_OVERRIDES}
        settings = draft.complete(lambda: load(config, {**line, **_STAND_IN}, read=draft.read))
    return CheckedConfiguration(settings, draft.mistakes(settings), draft.state_dir(config, overrides))


def check_rules(config: Path | None) -> tuple[Alerting | None, list[SettingsError]]:
    """The rules, routes and receivers in `config` and its rule files that `read_rules` would read if nothing were wrong, and every
    mistake."""
    draft = _Draft()
    alerting = draft.complete(lambda: rules_in(draft.read(config, CONFIG), draft.read))
    return alerting, draft.mistakes(alerting)


class _Draft:
    """The files of a configuration, from which mistakes are taken out."""

    def __init__(self) -> None:
        self._files: dict[Path | None, MappingNode] = {}
        self._sections: dict[Path | None, Section] = {}
        self._gone: list[SettingPlace] = []
        self._is_readable = True
        """True if the first file can be read, which is the configuration."""
        self._mistakes: dict[str, SettingsError] = {}

    def read(self, path: Path | None, keys: Keys) -> Section:
        """`read_file` without the parts that were taken out. A file that cannot be read is a mistake, and empty."""
        if path not in self._files:
            try:
                self._files[path] = read_nodes(path)
            except SettingsError as error:
                self._mistakes[str(error)] = error
                self._is_readable = self._is_readable and bool(self._files)
                self._files[path] = MappingNode()
        self._sections[path] = file_section(path, self._files[path], keys)
        return self._sections[path]

    def complete(self, attempt: Callable[[], T]) -> T | None:
        """The result of `attempt` when everything that is wrong is taken out. None: that cannot be done."""
        while len(self._mistakes) < MOST:
            try:
                return attempt()
            except SettingsError as error:
                if not self._take_out(error):
                    break
        return None

    def mistakes(self, alerting: Alerting | None) -> list[SettingsError]:
        """All mistakes; `alerting`: what was read without them."""
        if alerting:
            values = label_values(alerting.rules)
            for section in self._sections.values():
                for error in _matching_nothing(section, values):
                    self._mistakes[str(error)] = error
        return list(self._mistakes.values())

    def state_dir(self, config: Path | None, overrides: Mapping[str, object]) -> str:
        """The place where `state_dir` is set."""
        locations = (source["state_dir"].location for source in overrides_of(overrides) if "state_dir" in source)
        return next(locations, None) or self.read(config, CONFIG).get("state_dir").location

    def _take_out(self, error: SettingsError) -> bool:
        """Remember the mistake, unless another one is its cause, and take out what is wrong. False: it is nothing in a file."""
        place = error.place
        path = next((path for path in self._files if place and str(path) == place.file), None)
        if place is None or path is None:
            # Where what names the cluster is wrong, or its key is misspelled, none is left.
            if self._is_readable and not any(_names_cluster(gone) for gone in self._gone):
                self._mistakes[str(error)] = error
            return False
        if not any(_is_within(gone, place) for gone in self._gone):
            self._mistakes[str(error)] = error
        self._gone.append(place)
        before = self._files[path]
        after = self._add_receiver(before) if place.path == ("route",) else _remove(before, place.path)
        if not isinstance(after, MappingNode) or after is before:
            return False
        self._files[path] = after
        return True

    def _add_receiver(self, file: MappingNode) -> Node:
        """The file with a receiver for its route, which is wrong without one; without the route if it has one."""
        route = file.entries.get("route", MappingNode())
        names = (
            receiver.entries["name"]
            for document in self._files.values()
            if isinstance(listed := document.entries.get("receivers"), ListNode)
            for receiver in listed.items
            if isinstance(receiver, MappingNode) and "name" in receiver.entries
        )
        name = next(names, None)
        if not isinstance(route, MappingNode) or "receiver" in route.entries or name is None:
            return _remove(file, ("route",))
        return _put(file, "route", _put(route, "receiver", name))


def _is_within(inner: SettingPlace, outer: SettingPlace) -> bool:
    depth = len(outer.path)
    return inner.file == outer.file and len(inner.path) > depth and inner.path[:depth] == outer.path


def _names_cluster(place: SettingPlace) -> bool:
    key = str(place.path[0])
    return not _CLUSTER.isdisjoint([key] if key in CONFIG else get_close_matches(key, CONFIG, n=1))


def _remove(node: Node, path: Sequence[str | int], of: str = "") -> Node:
    """`node` without what is at `path`; the same object if nothing is there. `of`: the key of a list."""
    if not path:
        return _stand_in(node, of)
    step, rest = path[0], path[1:]
    if isinstance(node, MappingNode) and isinstance(step, str) and step in node.entries:
        entries = dict(node.entries)
        if rest:
            entries[step] = _remove(entries[step], rest, step)
            if entries[step] is node.entries[step]:
                return node
        else:
            del entries[step]
        return MappingNode(entries, {key: line for key, line in node.lines.items() if key in entries}, node.line)
    if isinstance(node, ListNode) and isinstance(step, int) and node.items[step] is not GONE:
        items = list(node.items)
        items[step] = _remove(items[step], rest, of)
        return node if items[step] is node.items[step] else ListNode(tuple(items), node.line)
    return node


def _stand_in(entry: Node, of: str) -> Node:
    """The replacement of an entry of the list `of`: with what it lacks; else its name alone, which is used elsewhere; else nothing."""
    name, key, value = _NAMED.get(of, ("", "", GONE))
    if not isinstance(entry, MappingNode) or name not in entry.entries:
        return GONE
    if key not in entry.entries:
        return _put(entry, key, value)
    least = _put(MappingNode({name: entry.entries[name]}, {name: entry.lines[name]}, entry.line), key, value)
    return GONE if entry.entries == least.entries else least


def _put(node: MappingNode, key: str, value: Node) -> MappingNode:
    return MappingNode({**node.entries, key: value}, {**node.lines, key: node.line}, node.line)


def _matching_nothing(document: Section, values: Mapping[str, set[str]]) -> Iterator[SettingsError]:
    """Matchers that no alert can match, because no rule has such a value. They are valid: another rule file may bring one."""
    sections = [document.section("route"), *document.sections("inhibit_rules")]
    while sections:
        section = sections.pop()
        if "routes" in section:
            sections += section.sections("routes")
        for key in ("matchers", "source_matchers", "target_matchers"):
            for setting in section.texts(key):
                for matcher in matchers(setting, None):
                    if problem := no_rule_has(matcher, values):
                        yield setting.error(problem)
