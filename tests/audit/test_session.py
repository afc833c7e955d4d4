"""Spark starts without noise, ends without a trace, and reports in one line why it does not start."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sidecar.audit.spark.jvm import script_environment

START = """
import sys
from sidecar.audit import AuditError
from sidecar.audit.spark.spark_session import spark_session

try:
    with spark_session(sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:])) as spark:
        print(spark.range(3).count(), spark.conf.get("spark.sql.session.timeZone"), flush=True)
        spark.stop()
except AuditError as error:
    print(error)
"""

KILLED = """
import os, pathlib, signal
from sidecar.audit.spark.spark_session import spark_session

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


NAMELESS = """
from sidecar.audit.spark.spark_session import spark_session

with spark_session("local[1]") as spark:
    system = spark.sparkContext._jvm.java.lang.System
    print(spark.range(3).count(), spark.sparkContext.sparkUser(), system.getenv("A_SECRET"), system.getenv("HOME"))
"""


@pytest.mark.spark
def test_spark_starts_for_a_user_without_a_name_and_gets_no_secret(tmp_path: Path) -> None:
    """As OpenShift starts containers, or `docker run -u`. The JVM's environment holds what Spark needs, not what this process has."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    # It may enter the folder that this Python is in: of root's capabilities it keeps the one over files.
    keep = ("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override")
    become = ("setpriv", "--reuid=1000650000", "--regid=0", "--clear-groups", *keep)
    environment = {"PATH": os.environ["PATH"], "HOME": "/", "TMPDIR": str(tmp_path), "A_SECRET": "hunter2"}
    done = subprocess.run(
        [*become, sys.executable, "-c", NAMELESS],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("3 uid-1000650000 None /\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_another_user_of_the_machine_cannot_speak_to_spark(spark: SparkSession) -> None:
    """Spark's ports deserialize Java objects: who reaches them needs its secret."""
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    managers: Any = getattr(jvm.org.apache.spark, "SecurityManager$")
    default = getattr(getattr(managers, "MODULE$"), "$lessinit$greater$default$3")()
    without = jvm.org.apache.spark.SecurityManager(conf, getattr(getattr(jvm.scala, "None$"), "MODULE$"), default)
    stranger = jvm.org.apache.spark.rpc.RpcEnv.create("stranger", "127.0.0.1", 0, conf, without, True)
    address = jvm.org.apache.spark.rpc.RpcAddress("127.0.0.1", int(spark.conf.get("spark.driver.port") or 0))
    try:
        with pytest.raises(Py4JJavaError) as refused:
            stranger.setupEndpointRef(address, "BlockManagerMaster")
        assert "SaslMessage" in refused.value.java_exception.getCause().getMessage()
    finally:
        stranger.shutdown()


@pytest.mark.parametrize(
    "settings",
    [{"spark.master": "yarn"}, {"spark.jars.packages": "a:b:1"}, {"spark.driver.extraClassPath": "/opt/aws.jar"}],
)
def test_only_other_classes_or_machines_get_the_whole_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    """They may need any variable, as the credentials of a cloud; PySpark alone has no client of one."""
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("KRB5CCNAME", "FILE:tickets")
    (tmp_path / "jars").mkdir()
    alone = script_environment(str(tmp_path), (), {"spark.master": "local[*]"})
    assert (alone.get("AWS_SECRET_ACCESS_KEY"), alone["KRB5CCNAME"]) == (None, "FILE:tickets")
    assert script_environment(str(tmp_path), (), settings)["AWS_SECRET_ACCESS_KEY"] == "hunter2"
    (tmp_path / "jars" / "hadoop-aws-3.5.0.jar").touch()
    assert script_environment(str(tmp_path), (), {})["AWS_SECRET_ACCESS_KEY"] == "hunter2"


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
    code = "import sys, sidecar.audit, sidecar.audit.spark.spark_session; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True
    )
    assert done.stdout == "False\n"
