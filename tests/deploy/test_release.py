"""`make release`, of the files here: two builds are equal, and what they built works where nothing else is installed.

Without the images: tests/deploy/test_image_build.py builds and starts them, and two builds of one take six minutes
(docs/project/releasing.md).
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests import ROOT
from tests.kit import helm
from tests.kit.cluster import A
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.lab.zookeeper import ZooKeeper

VERSION = "9.8.7"
SECONDS = 600
NOBODY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "tests"), ("EMAIL", "tests@example.com"))
}


def run(*command: str, folder: Path, status: int = 0, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    """A command to its end, as it ended."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **NOBODY, "PYTHONPATH": str(folder)},
        umask=umask,
    )
    assert done.returncode == status, done.stderr
    return done


def release(folder: Path, number: str = VERSION, **how: int) -> subprocess.CompletedProcess[str]:
    """`make release`, but for its setup."""
    return run(sys.executable, "-m", "scripts.release", "release", number, "--images=", folder=folder, **how)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this repository, as they are, in one whose version is set and committed."""
    folder = tmp_path_factory.mktemp("release") / "repository"
    folder.mkdir()
    for name in run("git", "ls-files", folder=ROOT).stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    run("git", "init", "--quiet", folder=folder)
    (folder / "CHANGELOG.md").write_text(
        (ROOT / "CHANGELOG.md")
        .read_text()
        .replace("\n## ", f"\n## [{VERSION}] - Unreleased\n\n### Added\n\n- All.\n\n## ", 1)
    )
    run("git", "add", "--all", folder=folder)
    run("git", "commit", "--quiet", "--message=Before", folder=folder)
    return folder


@pytest.fixture(scope="module")
def released(repository: Path) -> Path:
    """The folder with the release."""
    run(sys.executable, "-m", "scripts.release", "version", VERSION, folder=repository)
    run("git", "commit", "--quiet", "--all", "--message=Release", folder=repository)
    return Path(release(repository).stdout.strip())


def test_what_cannot_be_released_is_refused_in_one_line(released: Path, repository: Path) -> None:
    """A version that the tree is not, one without a section, and changes that are not committed; nothing is built."""
    refused = [release(repository, number, status=2).stderr for number in (f"{VERSION}-rc.1", "7.7.7")]
    (repository / "README.md").write_text("Something else.\n")
    refused.append(release(repository, status=2).stderr)
    run("git", "checkout", "--quiet", "README.md", folder=repository)
    reasons = (f"this tree is {VERSION}: ", "has no section for 7.7.7: ", "not committed, README.md first: ")
    for text, reason in zip(refused, reasons, strict=True):
        assert reason in text
        assert len(text.splitlines()) == 1
    assert [path.name for path in (repository / "dist").iterdir()] == [released.name]


def test_two_builds_are_equal(released: Path, repository: Path, tmp_path: Path) -> None:
    """Elsewhere, with another umask, beside files that no commit has; and the checksums are those of the files."""
    elsewhere = tmp_path / "with a longer name"
    run("git", "clone", "--quiet", str(repository), str(elsewhere), folder=tmp_path)
    (elsewhere / "sidecar" / "__pycache__").mkdir()
    (elsewhere / "sidecar" / "__pycache__" / "left.pyc").write_text("of an earlier run")
    again = Path(release(elsewhere, umask=0o077).stdout.strip())
    assert (again / "SHA256SUMS").read_text() == (released / "SHA256SUMS").read_text()
    for folder in (released, again):
        checked = run("sha256sum", "--check", "--strict", "SHA256SUMS", folder=folder).stdout
        assert len(checked.splitlines()) == 5
    assert sorted(str(path.relative_to(released)) for path in released.rglob("*") if path.is_file()) == [
        "SHA256SUMS",
        f"chart/flink-ha-sidecar-{VERSION}.tgz",
        "notes.md",
        f"python/flink_ha_sidecar-{VERSION}-py3-none-any.whl",
        f"python/flink_ha_sidecar-{VERSION}.tar.gz",
        "sbom.cdx.json",
    ]


def test_the_chart_is_a_chart(released: Path, tmp_path: Path) -> None:
    """Helm makes the same manifests of the archive as of the folder, with the image of this version."""
    with tarfile.open(released / "chart" / f"flink-ha-sidecar-{VERSION}.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert helm.lint(tmp_path / "flink-ha-sidecar", {"clusterId": "orders"}) == []
    manifests = helm.render(tmp_path / "flink-ha-sidecar", {"clusterId": "orders"}, "release", "flink")
    assert f"flink-ha-sidecar:{VERSION}" in json.dumps(manifests)


def test_the_bill_of_materials_is_the_lock(released: Path) -> None:
    """Each package once, with each of its hashes."""
    lock = (ROOT / "requirements" / "sidecar.lock").read_text()
    bom = json.loads((released / "sbom.cdx.json").read_text())
    assert (bom["bomFormat"], bom["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
    listed = {f"{name}=={number}" for name, number in re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", lock, re.MULTILINE)}
    assert {f"{component['name']}=={component['version']}" for component in bom["components"]} == listed
    hashes = sorted(each["content"] for component in bom["components"] for each in component["hashes"])
    assert hashes == sorted(re.findall(r"sha256:([0-9a-f]{64})", lock))


@pytest.fixture(scope="module")
def installed(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the released wheel, in an environment that has it and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "venv", folder=folder)
    pip = (str(folder / "venv" / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    run(*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "sidecar.lock"), folder=folder)
    (wheel,) = (released / "python").glob("*.whl")
    run(*pip, str(wheel), folder=folder)
    run(*pip[:1], "check", folder=folder)
    return folder / "venv" / "bin" / "flink-ha-sidecar"


def test_the_installed_wheel_says_who_leads(installed: Path, zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """In an empty environment, of a real ZooKeeper; and it is the version that was released."""
    assert run(str(installed), "--version", folder=tmp_path).stdout.split()[-1] == VERSION
    with connected(zookeeper.address) as client:
        Flink(ZNodes(writer=ZooKeeperWriter(client))).elect(A)
        shown = run(str(installed), "who", "--zookeeper", zookeeper.address, "--output", "json", folder=tmp_path)
    leaders = [json.loads(line) for line in shown.stdout.splitlines()]
    assert {leader["state"] for leader in leaders} == {"held"}
    assert {"dispatcher", "resource_manager", "rest_server"} <= {leader["component"] for leader in leaders}


def test_the_installed_wheel_has_its_rules_and_pages(installed: Path, tmp_path: Path) -> None:
    """They are no modules of Python: a wheel without them fails when it is configured."""
    (tmp_path / "sidecar.yaml").write_text(f"zookeeper: {{quorum: '127.0.0.1:1'}}\nstate_dir: {tmp_path}\n")
    run(str(installed), "config", "check", "--config", "sidecar.yaml", folder=tmp_path)
    assert "FlinkNoLeader" in run(str(installed), "rules", "show", "--config", "sidecar.yaml", folder=tmp_path).stdout
