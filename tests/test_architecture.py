"""What docs/project/architecture.md says of the code is so."""

import ast
import re
import tomllib

from tests import ROOT
from tests.kit.architecture import the_map

TEXT = (ROOT / "docs" / "project" / "architecture.md").read_text(encoding="utf-8")


def test_the_map_is_drawn_from_the_imports() -> None:
    """`python -m tests.kit.architecture` prints it as it is now."""
    assert the_map() in TEXT


def test_every_file_that_it_names_is_there() -> None:
    """Paths of modules, tests and folders."""
    named = re.findall(r"`((?:sidecar|tests|docs|rules|deploy)/[\w./-]+)`", TEXT)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_source_archive_has_what_the_wheel_is_made_of() -> None:
    """Else a wheel can be built from the repository and not from the archive."""
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    inside = [path.lstrip("/") for path in targets["sdist"]["include"]]
    assert [path for path in inside if not (ROOT / path).exists()] == []
    assert {*targets["wheel"]["packages"], *targets["wheel"]["force-include"]} <= {*inside}


def test_what_threads_decode_has_a_decoder_that_its_module_built() -> None:
    """msgspec 0.22 ends the process (SIGSEGV) when two threads are the first to decode one type: an import is one thread's."""
    offenders = []
    for module in (ROOT / "sidecar").rglob("*.py"):
        if module.relative_to(ROOT / "sidecar").parts[0] not in {"audit", "simulation"}:  # commands, of one thread
            calls = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)]
            typed = [
                call for call in calls for keyword in call.keywords if keyword.arg == "type" and _name(call) == "decode"
            ]
            offenders += [f"{module.name}:{call.lineno}" for call in typed if not _is_plain(call)]
    assert offenders == []


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _is_plain(call: ast.Call) -> bool:
    """Whether what is decoded has types of Python alone."""
    return any("dict[str, Any]" in ast.unparse(given.value) for given in call.keywords)
