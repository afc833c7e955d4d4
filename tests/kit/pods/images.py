"""The images of the pods, in one archive in the user's cache.

Our own by the project's script, Flink's from its jars, and what a pod's sandbox runs.
"""

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import sidecar
from sidecar.runtime.folders import cache_folder
from tests import ROOT
from tests.kit.images import BUILD_SECONDS, Builder, missing
from tests.lab.distribution import flink_home

FLINK_VERSION: Final = "2.3.0"
SIDECAR: Final = f"registry.example.com/flink-ha-sidecar:{sidecar.__version__}"
NEXT_SIDECAR: Final = "registry.example.com/flink-ha-sidecar:next"
"""The same under another name."""
AUDIT: Final = f"registry.example.com/flink-ha-sidecar-audit:{sidecar.__version__}"
FLINK: Final = f"registry.example.com/flink:{FLINK_VERSION}"
NEXT_FLINK: Final = "registry.example.com/flink:next"
"""The same under another name."""
PAUSE: Final = "registry.example.com/pause:1"
_SCRIPTS: Final = ROOT / "scripts" / "pods"
_TAG: Final = "pods"


def archive() -> Path:
    """The archive that `build` made last: an OCI layout, for `ctr images import`."""
    return cache_folder() / "pods" / "images.tar"


def build() -> None:
    """Build them, from what is in the cache as far as possible. AssertionError where they cannot be built."""
    lacks = missing()
    assert not lacks, f"missing: {', '.join(lacks)}"
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(Path(folder), _TAG)
        builder.build("sidecar", "audit")
        _build_flink(builder, Path(folder) / "context")
        built = {
            SIDECAR: f"localhost/flink-ha-sidecar:{_TAG}",
            NEXT_SIDECAR: f"localhost/flink-ha-sidecar:{_TAG}",
            AUDIT: f"localhost/flink-ha-sidecar-audit:{_TAG}",
            FLINK: f"localhost/flink:{_TAG}",
            NEXT_FLINK: f"localhost/flink:{_TAG}",
            PAUSE: f"localhost/pause:{_TAG}",
        }
        _write(builder, built, Path(folder) / "layout")


def _build_flink(builder: Builder, context: Path) -> None:
    """Flink's image and that of a pod's sandbox. `context`: a folder to be made."""
    home = flink_home(FLINK_VERSION, lambda line: print(f"pods: {line}", file=sys.stderr))  # noqa: T201
    (context / "lib").mkdir(parents=True)
    for jar in [*home.glob("lib/flink-dist-*.jar"), *home.glob("lib/log4j-*.jar")]:
        shutil.copy2(jar, context / "lib")
    shutil.copy2(_SCRIPTS / "docker-entrypoint.sh", context)
    base = builder.base()
    for target in ("pause", "flink"):
        with builder.alone():
            builder.buildah(
                *("build", "--layers", "--quiet", "--file", str(_SCRIPTS / "flink.Dockerfile"), "--target", target),
                *("--build-arg", f"BASE_IMAGE={base}", "--tag", f"localhost/{target}:{_TAG}", str(context)),
                seconds=BUILD_SECONDS,
            )


def _write(builder: Builder, images: dict[str, str], layout: Path) -> None:
    """One archive with all of them, unless these very images are in it already."""
    ids = "\n".join(f"{name} {_id(builder, built)}" for name, built in images.items())
    there = archive().with_suffix(".ids")
    if archive().exists() and there.exists() and there.read_text() == ids:
        return
    for name, built in images.items():
        # What is read from this disk alone need not be compressed.
        builder.buildah(
            "push", "--quiet", "--disable-compression", built, f"oci:{layout}:{name}", seconds=BUILD_SECONDS
        )
    archive().parent.mkdir(parents=True, exist_ok=True)
    there.unlink(missing_ok=True)
    with tarfile.open(archive(), "w") as packed:
        packed.add(layout, arcname=".")
    there.write_text(ids)


def _id(builder: Builder, image: str) -> str:
    return builder.buildah("images", "--quiet", "--no-trunc", image).strip()
