"""How the package is installed, as documents say it, and what it is then: also a plug-in of kubectl."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from scripts.release import version
from sidecar.core import errors
from tests import ROOT
from tests.kit.cluster import CLUSTER, A
from tests.kit.config_maps import ApiServerWriter, ConfigMaps
from tests.kit.fake_flink import Flink
from tests.kit.kubectl import find_kubectl
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.serving import serving

DOCUMENTS = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
FROM_INDEX = re.compile(r"pip install '?flink-ha-sidecar\b")
FROM_CLONE = re.compile(r"pip install '?\.(?=[`\[\s])|in a clone of this repository")
RELEASED = re.compile(r"^## \[[1-9][\d.]*\] - \d{4}-", re.MULTILINE)
"""A section of the changelog with a date."""


def lines(pattern: re.Pattern[str], folder: Path) -> dict[str, int]:
    """How often each document below the folder has it."""
    found = {str(file.relative_to(folder)): len(pattern.findall(file.read_text())) for file in folder.glob("**/*.md")}
    return {name: count for name, count in found.items() if count}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A repository with the documents of this one, and its version."""
    for file in (*DOCUMENTS, ROOT / "sidecar" / "__init__.py"):
        place = tmp_path / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)  # noqa: S607  the git of this machine
    return tmp_path


def test_documents_name_what_can_be_installed(documents: Path) -> None:
    """Before the first release no index has the package: it is installed from a clone."""
    released = RELEASED.search((ROOT / "CHANGELOG.md").read_text()) is not None
    assert bool(lines(FROM_CLONE, documents)) is not released
    assert [name for name in lines(FROM_INDEX, documents) if name != "docs/project/releasing.md"] == [] or released


def test_errors_name_what_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the documents do, and from one place: only a release is on a package index."""
    monkeypatch.setattr(errors, "__version__", "1.0.0-rc.1")
    assert errors.installing("audit") == "pip install '.[audit]' in a clone of its repository"
    monkeypatch.setattr(errors, "__version__", "1.0.0")
    assert errors.installing("audit") == "pip install 'flink-ha-sidecar[audit]'"
    texts = {file.relative_to(ROOT): file.read_text() for file in (ROOT / "sidecar").rglob("*.py")}
    assert [str(file) for file, text in texts.items() if "pip install" in text] == ["sidecar/core/errors.py"]


@pytest.mark.skipif(RELEASED.search((ROOT / "CHANGELOG.md").read_text()) is not None, reason="they say so already")
def test_a_release_has_them_say_that_the_index_has_it(documents: Path) -> None:
    """All of them, in the same places; a pre-release changes nothing."""
    before = lines(FROM_CLONE, documents)
    version.write(documents, version.parsed("1.0.0-rc.1"))
    assert lines(FROM_CLONE, documents) == before
    version.write(documents, version.parsed("1.0.0"))
    assert lines(FROM_CLONE, documents) == {}
    assert lines(FROM_INDEX, documents).keys() >= before.keys()
    readme = (documents / "README.md").read_text()
    assert "\n`pip install flink-ha-sidecar`, on a machine that reaches" in readme
    assert "(`pip install 'flink-ha-sidecar[audit]'`, Java 17" in readme
    assert "/bin/pip install flink-ha-sidecar\n" in (documents / "docs/tutorials/quick-start-zookeeper.md").read_text()


def test_kubectl_takes_it_as_a_plug_in(tmp_path_factory: pytest.TempPathFactory, apiserver: Path) -> None:
    """`kubectl flink-ha who`, with all that follows."""
    with serving(Kubernetes(tmp_path_factory.mktemp("kubernetes"), apiserver)) as kubernetes:
        namespace = kubernetes.namespace(f"test-{uuid4()}")
        writer = ApiServerWriter(kubernetes.server.url, kubernetes.authority.ca, "admin-of-the-tests", namespace.name)
        Flink(ConfigMaps(writer=writer, duration="PT2S")).grant(A).submit().publish_all(A)
        where = ("--kubernetes", "--namespace", namespace.name, "--cluster-id", CLUSTER)
        done = subprocess.run(
            [str(find_kubectl()), "flink-ha", "who", *where, "--kubeconfig", str(kubernetes.kubeconfig())],
            env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path_factory.mktemp("home"))},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")  # whoever led has died: its lease has expired
    assert "dispatcher" in done.stdout
