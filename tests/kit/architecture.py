"""The map in docs/project/architecture.md, drawn from the imports. `python -m tests.kit.architecture` prints it."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests import ROOT

_CODE: Final = ROOT / "sidecar"
_FOR_ALL: Final = frozenset({"sidecar.runtime", "sidecar.ports", "sidecar.__main__"})
"""What everybody may import: arrows to it would hide all others."""
_TOGETHER: Final = {"core.failover": "core.cluster", "core.leadership": "core.cluster"}
"""Rooms that share one state and import one another. They are drawn as one."""

Rooms = Mapping[str, Collection[str]]
"""Each room, and those whose modules its modules import."""


def rooms(*divided: str) -> Rooms:
    """The packages and modules directly below `sidecar` and the `divided` packages, these themselves excepted."""
    imports = defaultdict[str, set[str]](set)
    for file in _CODE.rglob("*.py"):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        here = _room(module, divided)
        if here is None:
            continue
        imports[here] |= set()
        for imported in _imports(file):
            there = _room(imported, divided)
            if there and there != here:
                imports[here].add(there)
    return imports


def drawn(imports: Rooms) -> str:
    """As a Mermaid diagram: an arrow for each import that does not follow from other arrows."""
    lines = ["graph TD"]
    for room, below in sorted(imports.items()):
        indirect = {far for near in below for far in _reach(near, imports)}
        lines += [f"  {room} --> {other}" for other in sorted({*below} - indirect)]
    return "\n".join(lines)


def the_map() -> str:
    """All rooms, with the core as one; then those of the core."""
    core = rooms("sidecar.core")
    inside = {room: {other for other in below if _is_core(other)} for room, below in core.items() if _is_core(room)}
    return "\n".join(f"```mermaid\n{drawn(imports)}\n```\n" for imports in (rooms("sidecar.sinks"), inside))


def _is_core(room: str) -> bool:
    return room.startswith("core.")


def _room(module: str, divided: tuple[str, ...]) -> str | None:
    """The room that a module is in, without `sidecar.`; None: not of interest."""
    parts = module.split(".")
    depth = 3 if ".".join(parts[:2]) in divided else 2
    room = ".".join(parts[:depth])
    path = _CODE.joinpath(*parts[1:depth])
    is_room = parts[0] == "sidecar" and len(parts) >= depth and (path.is_dir() or path.with_suffix(".py").is_file())
    name = room.removeprefix("sidecar.")
    return _TOGETHER.get(name, name) if is_room and room not in _FOR_ALL else None


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _reach(room: str, imports: Rooms) -> set[str]:
    """All that can be reached from a room, itself excepted."""
    reach, waiting = set[str](), [*imports.get(room, ())]
    while waiting:
        if (now := waiting.pop()) not in reach:
            reach.add(now)
            waiting += imports.get(now, ())
    return reach


if __name__ == "__main__":
    print(the_map())  # noqa: T201  a command prints
