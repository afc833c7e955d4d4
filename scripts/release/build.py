"""What a release is made of, from one commit: `dist/VERSION/`."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.release import changelog, version
from scripts.release.archives import checksums, pack
from scripts.release.sbom import bill
from scripts.release.version import ReleaseError, Version
from tests.kit import helm

_BUILD_SECONDS: Final = 3600.0
IMAGES: Final = ("sidecar", "audit")


def build(root: Path, wanted: str, images: Sequence[str], options: Sequence[str]) -> Path:
    """The folder with the release of what is checked out. Raises ReleaseError.

    `images`: which of IMAGES; `options`: more of the image build's. Two builds of a commit are equal: times are the commit's.
    """
    number = version.parsed(wanted)
    notes = changelog.notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), number)
    if (current := version.current(root)) != number:
        raise ReleaseError(f"this tree is {current}: run `make version VERSION={number}`, and commit")
    if changes := _git(root, "status", "--porcelain"):
        raise ReleaseError(
            f"there are changes that are not committed, {changes.splitlines()[0].split()[-1]} first: a release is of a commit"
        )
    if unknown := {*images} - {*IMAGES}:
        raise ReleaseError(f"there is no image {min(unknown)!r}: images are {' and '.join(IMAGES)}")
    if images and not shutil.which("buildah"):
        raise ReleaseError(
            "buildah is missing, which builds the images: apt-get install buildah, or leave them out: IMAGES="
        )
    os.umask(0o022)
    epoch = int(_git(root, "log", "-1", "--format=%ct"))
    dist = root / "dist"
    dist.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release.", dir=dist) as work:
        tree, made = Path(work, "tree"), Path(work, "made")
        _export(root, tree)
        _python(tree, made / "python", epoch)
        _chart(tree, made / "chart", epoch)
        for image in images:
            _image(tree, made / "images", image, number, epoch, _git(root, "rev-parse", "HEAD"), options)
        (made / "sbom.cdx.json").write_text(bill((tree / "requirements" / "sidecar.lock").read_text(), number))
        (made / "notes.md").write_text(notes)
        (made / "SHA256SUMS").write_text(checksums(made))
        release = dist / number
        shutil.rmtree(release, ignore_errors=True)
        made.rename(release)
    return release


def _export(root: Path, tree: Path) -> None:
    """The files of the commit, and nothing that lies beside them."""
    tree.mkdir()
    archive = tree.with_suffix(".tar")
    _git(root, "archive", "--format=tar", f"--output={archive}", "HEAD")
    _run(["tar", "--extract", "--file", str(archive), "--directory", str(tree)])


def _python(tree: Path, folder: Path, epoch: int) -> None:
    """Wheel and source archive. hatchling sorts, and takes the time from SOURCE_DATE_EPOCH."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    _run([*command, "-t", "sdist", "-t", "wheel"], tree, {"SOURCE_DATE_EPOCH": str(epoch)})


def _chart(tree: Path, folder: Path, epoch: int) -> None:
    """Helm's package, packed again: Helm writes the present time into it."""
    folder.mkdir()
    try:
        package = helm.package(tree / "deploy" / "chart" / "flink-ha-sidecar", folder)
    except helm.HelmError as error:
        raise ReleaseError(f"the chart cannot be packaged: {error}") from None
    with tempfile.TemporaryDirectory() as files:
        _run(["tar", "--extract", "--gzip", "--file", str(package), "--directory", files])
        pack(Path(files), package, epoch)


def _image(
    tree: Path, folder: Path, image: str, number: Version, epoch: int, revision: str, options: Sequence[str]
) -> None:
    """An OCI archive of an image that is built from nothing, with the commit's time on all of its files."""
    folder.mkdir(exist_ok=True)
    repository = "localhost/flink-ha-sidecar"
    name = f"flink-ha-sidecar{'' if image == 'sidecar' else f'-{image}'}"
    variables = {"ENGINE": "buildah", "IMAGE": repository, "TAG": number, "REVISION": revision}
    same = ("--no-cache", "--timestamp", str(epoch), "--build-arg", f"SOURCE_DATE_EPOCH={epoch}")
    _run([str(tree / "deploy" / "build-image.sh"), image, "--", *same, *options], tree, variables)
    with tempfile.TemporaryDirectory(dir=folder.parent) as layout:
        _run(["buildah", "push", f"localhost/{name}:{number}", f"oci:{layout}:{number}"])
        pack(Path(layout), folder / f"{name}-{number}.oci.tar", epoch)


def _git(root: Path, *arguments: str) -> str:
    return _run(["git", "-C", str(root), *arguments]).strip("\n")


def _run(command: Sequence[str], folder: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
    """What a command prints; what it logs is shown."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {**(variables or {})},
            stdout=subprocess.PIPE,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseError(f"cannot run {command[0]}: {error}") from None
    if done.returncode:
        raise ReleaseError(f"{Path(command[0]).name} ended with {done.returncode}; what it said is above")
    return done.stdout
