"""kubectl, with the Kustomize in it, as Debian 13 has it: components and replacements take 1.21, and Debian 12's is older."""

import getpass
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from sidecar.runtime.folders import cache_folder

_RELEASE: Final = "trixie"
_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_FETCH_SECONDS: Final = 180.0
_ANSWER_SECONDS: Final = 60.0
Manifest = dict[str, Any]


def find_kubectl() -> Path:
    """The program, from Debian's package: fetched by apt into the user's cache and unpacked there. Nothing is installed."""
    home = cache_folder() / f"kubectl-{_RELEASE}"
    program = home / "usr" / "bin" / "kubectl"
    if not program.is_file():
        with tempfile.TemporaryDirectory(prefix=f".{home.name}.", dir=cache_folder()) as folder:
            unpacked = _fetch(Path(folder))
            if not home.is_dir():  # else another process was faster
                unpacked.rename(home)
    return program


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """What a command prints; AssertionError with its errors."""
    done = subprocess.run(
        [str(find_kubectl()), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_ANSWER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def kustomize(folder: Path) -> list[Manifest]:
    """All manifests that `kubectl apply -k` would apply."""
    return [*YAML(typ="safe").load_all(kubectl("kustomize", str(folder)))]


def _fetch(folder: Path) -> Path:
    """An apt of our own: the system's packages, lists and sources stay as they are."""
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    targets = _run(folder, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian")
    mirror = targets.splitlines()[0]
    (folder / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {mirror} {_RELEASE} main\n")
    aside = [
        *("-qq", "-o", f"Dir::Etc::SourceList={folder}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null"),
        *("-o", f"Dir::State::Lists={folder}/lists", "-o", "Dir::State::status=/dev/null"),
        *("-o", f"Dir::Cache={folder}", "-o", f"APT::Sandbox::User={getpass.getuser()}"),
    ]
    _run(folder, "apt-get", *aside, "update")
    _run(folder, "apt-get", *aside, "download", "kubectl")
    (archive,) = folder.glob("kubectl_*.deb")
    _run(folder, "dpkg", "-x", archive.name, "unpacked")
    return folder / "unpacked"


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}: no kubectl to test with"
    return done.stdout
