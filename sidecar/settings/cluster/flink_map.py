"""Flink's map options: `k:v,k2:v2`, or YAML in a text."""

import re
from contextlib import suppress
from typing import Final

from sidecar.settings.file.nodes import ScalarNode
from sidecar.settings.file.settings_error import SettingsError

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
    from sidecar.settings.file.document import parse  # noqa: PLC0415  imports ruamel.yaml

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
