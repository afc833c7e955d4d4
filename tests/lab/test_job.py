"""The job's jar in the repository is what its source compiles to."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.lab.distribution import flink_home

JOB = ROOT / "tests" / "lab" / "job"


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["2.3.0", "1.20.5"])
def test_the_kept_jar_is_what_the_source_compiles_to(version: str, tmp_path: Path) -> None:
    """Built again, against either generation of Flink, the jar is the same, byte for byte."""
    if not (shutil.which("javac") and shutil.which("jar")):
        pytest.skip(  # a failure in CI: see tests/conftest.py
            "javac and jar are needed to rebuild the job: install a JDK (Debian: apt-get install openjdk-17-jdk-headless)"
        )
    rebuilt = tmp_path / "job.jar"
    library = flink_home(version, lambda _line: None) / "lib"
    subprocess.run([JOB / "build.sh", library, rebuilt], check=True, timeout=120)
    assert rebuilt.read_bytes() == (JOB / "never-ending-job.jar").read_bytes()
