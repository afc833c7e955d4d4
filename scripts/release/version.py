"""The version: it stands in `sidecar/__init__.py`, and in manifests and documents that name the images, which are held to it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NewType

Version = NewType("Version", str)
BASE: Final = r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}"
RELEASE: Final = re.compile(BASE)
_VERSION: Final = re.compile(rf"{BASE}(?:-(?:dev|alpha|beta|rc)\.(?:0|[1-9]\d*))?")
_HOME: Final = Path("sidecar", "__init__.py")
_WRITTEN: Final = re.compile(
    r"""(?P<before>^__version__\ =\ "              # sidecar/__init__.py
        | ^(?:version|appVersion):\ (?=\d)        # the chart
        | \bflink-ha-sidecar(?:-audit)?:(?=\d))   # images, by their tags
        (?P<version>[\w.-]*\w)""",
    re.MULTILINE | re.VERBOSE,
)
_FROM_A_CLONE: Final = re.compile(
    r"""(?P<before>\bpip\ install\ '?)\.(?P<extra>(?:\[[\w-]+\]'?)?(?=[`\s]))
        (?P<end>`?)(?:\ \(in\ a\ clone\ of\ this\ repository\)|\ *\#\ in\ a\ clone\ of\ this\ repository)?""",
    re.VERBOSE,
)
"""How documents install it as long as no package index has it."""
_PLACES: Final = ("sidecar/__init__.py", "deploy", "docs", "README.md")


class ReleaseError(Exception):
    """Why there is no release: one line, with what to do."""


def parsed(text: str) -> Version:
    """A version as Semantic Versioning writes it, and Python takes it. Raises ReleaseError."""
    if not _VERSION.fullmatch(text):
        raise ReleaseError(
            f"{text!r} is no version: give X.Y.Z, or X.Y.Z-rc.N (also -alpha.N, -beta.N, -dev.N), which SemVer and PEP 440 both take"
        )
    return Version(text)


def published(text: str) -> str:
    """A document in which the package is installed from the index."""
    return _FROM_A_CLONE.sub(lambda match: f"{match['before']}flink-ha-sidecar{match['extra']}{match['end']}", text)


def places(root: Path) -> Iterator[tuple[Path, str]]:
    """Each file that names the version, with the version that it names, once for each time."""
    for file in _files(root):
        yield from ((file, match["version"]) for match in _WRITTEN.finditer(file.read_text(encoding="utf-8")))


def _files(root: Path) -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *_PLACES],  # noqa: S607  the git of this machine
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        file = root / name
        if file.suffix in {".py", ".yaml", ".md"}:
            yield file


def current(root: Path) -> str:
    """The version of the tree."""
    match = _WRITTEN.search((root / _HOME).read_text(encoding="utf-8"))
    if not match:
        raise ReleaseError(f"no __version__ in {_HOME}")
    return match["version"]


def write(root: Path, version: Version) -> list[Path]:
    """Write it to all places; the files that have changed. From the first release on, documents install it from the index."""
    changed = []
    for file in _files(root):
        text = file.read_text(encoding="utf-8")
        new = _WRITTEN.sub(lambda match: match["before"] + version, text)
        if RELEASE.fullmatch(version) and file.suffix == ".md":
            new = published(new)
        if new != text:
            file.write_text(new, encoding="utf-8")
            changed.append(file)
    return changed
