"""Spark starts without noise, ends without a trace, and reports in one line why it does not start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import sys
from sidecar.audit import AuditError
from sidecar.audit.session import spark_session

try:
    with spark_session(sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:])) as spark:
        print(spark.range(3).count(), spark.conf.get("spark.sql.session.timeZone"), flush=True)
        spark.stop()
except AuditError as error:
    print(error)
"""

KILLED = """
import os, pathlib, signal
from sidecar.audit.session import spark_session

with spark_session("local[1]") as spark:
    spark.range(3).localCheckpoint()
    (jvm,) = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    os.kill(int(jvm), signal.SIGKILL)
"""
KILLED_TOO = KILLED + "    os.kill(os.getpid(), signal.SIGKILL)"


def start(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None, inside: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """A process that starts Spark as the commands do, and what it printed; `inside` is the command that starts the process."""
    return subprocess.run(
        [*inside, sys.executable, "-c", START, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=os.environ | (environment or {}),
        check=True,
    )


@pytest.mark.spark
def test_a_session_leaves_nothing_behind(tmp_path: Path) -> None:
    """No word on standard output or error, no file where it was started, no JVM."""
    done = start(tmp_path, "local[1]", "spark.driver.memory=600m")
    assert (done.stdout, done.stderr) == ("3 UTC\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_a_killed_jvm_leaves_nothing_behind(tmp_path: Path) -> None:
    """What Spark has spilled goes with it: else the disk fills where a job is killed each night, for lack of memory."""
    subprocess.run([sys.executable, "-c", KILLED], env=os.environ | {"TMPDIR": str(tmp_path)}, timeout=120, check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_what_a_killed_command_leaves_the_next_one_removes(tmp_path: Path) -> None:
    """Both end at once, as where a pod needs too much memory, and the folder for temporary files outlasts the container."""
    environment = {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", KILLED_TOO]
    killed = subprocess.run(command, env=os.environ | environment, timeout=120, check=False)
    assert killed.returncode < 0
    assert list(tmp_path.glob("flink-ha-audit-*/files/blockmgr-*"))
    assert start(tmp_path, "local[1]", environment=environment).stdout == "3 UTC\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_with_a_log_level_spark_logs_to_standard_error(tmp_path: Path) -> None:
    """The level is Spark's own setting."""
    done = start(tmp_path, "local[1]", "spark.log.level=INFO")
    assert done.stdout == "3 UTC\n"
    assert 'Setting Spark log level to "INFO"' in done.stderr


@pytest.mark.spark
def test_the_host_name_need_not_be_resolved(tmp_path: Path) -> None:
    """As in a container without a network, and where an image is built."""
    if os.geteuid():
        pytest.skip("only root can give a host another name")
    renamed = ("unshare", "--uts", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "sh")
    done = start(tmp_path, "local[1]", inside=renamed)
    assert (done.stdout, done.stderr) == ("3 UTC\n", "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nonsense",), "Master must either be yarn or start with spark, k8s, or local"),
        (("local[1]", "spark.driver.memory=banana"), "Invalid maximum heap size: -Xmxbanana"),
    ],
)
def test_what_spark_does_not_understand_is_one_line(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    """The line that matters out of the fifty that the JVM prints."""
    done = start(tmp_path, *arguments)
    assert (done.stdout, done.stderr) == (f"cannot start Spark: {problem}\n", "")


def test_a_missing_or_old_java_is_one_line(tmp_path: Path) -> None:
    """The error names the Java that was found, and what to do."""
    remedy = "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    needs = "cannot start Spark: it needs Java 17 or newer, and"
    none = start(tmp_path, "local[1]", environment={"PATH": str(tmp_path), "JAVA_HOME": ""})
    assert (none.stdout, none.stderr) == (f"{needs} none was found: {remedy}\n", "")
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\nexit 1\n")
    old.chmod(0o755)
    done = start(tmp_path, "local[1]", environment={"JAVA_HOME": str(tmp_path)})
    assert (done.stdout, done.stderr) == (f"{needs} {old} is Java 8: {remedy}\n", "")


def test_importing_the_package_does_not_import_spark(tmp_path: Path) -> None:
    """So that `--help` is fast, and works without the `audit` extra."""
    code = "import sys, sidecar.audit, sidecar.audit.session; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True
    )
    assert done.stdout == "False\n"
