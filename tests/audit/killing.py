"""Ingests (and other work) that are killed: with their own JVM, or on one that survives, so that a kill costs no start of Spark."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sidecar.audit.ingest.ingest import ingest
from tests.audit.spooling import NOON, ids_seen, seal, transition

_OWN_JVM = """
import sys
from sidecar.audit.spark.spark_session import spark_session
{imports}

with spark_session("local[2]") as spark:
    print("started", flush=True)
    {work}
    print("done", flush=True)
"""
GIVEN_JVM = """
import os, sys
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
{imports}

gateway = launch_gateway()
java = gateway.jvm.JavaSparkContext.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
context = SparkContext(conf=SparkConf(_jconf=java.getConf()), gateway=gateway, jsc=java)
spark = SparkSession(context)
print("started", flush=True)
{work}
print("done", flush=True)
os._exit(0)  # the JVM survives
"""
"""A script that runs on the JVM of a session that lends it."""
_CHANGES = 60
_DATES = 3
_PATIENCE = 1.25
"""Whoever is killed may have more time in the next round, until one is done: so kills come at every stage, on any machine."""


@contextmanager
def started(script: str, *arguments: Path, environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A script in a process and a group of its own, once it has printed `started`; killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == "started\n"
            yield process
        finally:
            process.kill()


@contextmanager
def ingesting(spool: Path, audit: Path, jvm_of: SparkSession | None = None) -> Iterator["subprocess.Popen[str]"]:
    """An ingest that is about to begin in its own process, with its own JVM or on that of a session. It ends with the block."""
    with running(ingest, spool, audit, jvm_of=jvm_of) as process:
        yield process


@contextmanager
def running(
    work: Callable[..., object], *arguments: Path, jvm_of: SparkSession | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """`work` that is about to begin in its own process, with its own JVM or on that of a session. It ends with the block."""
    # What a killed process has no time to remove goes where the spool or the log goes.
    leftovers = str(arguments[0].parent)
    environment = os.environ | {"TMPDIR": leftovers, "SPARK_LOCAL_DIRS": leftovers}
    if jvm_of is not None:
        environment |= given_jvm(jvm_of)
    imports, call = f"from {work.__module__} import {work.__name__}", f"{work.__name__}(spark, *sys.argv[1:])"
    script = (_OWN_JVM if jvm_of is None else GIVEN_JVM).format(imports=imports, work=call)
    with started(script, *arguments, environment=environment) as process:
        yield process
    deadline = time.monotonic() + 30
    while _alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(process.pid)  # the JVM ends by itself when its Python does


def given_jvm(spark: SparkSession) -> dict[str, str]:
    """The environment of a process that runs on the JVM of a session."""
    parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
    return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def killed(process: "subprocess.Popen[str]", chance: random.Random, seconds: float) -> float:
    """Kill it at a random moment of the `seconds` that it may take, unless it has ended well by then. How many it may take next time."""
    began = time.monotonic()
    try:
        process.wait(chance.uniform(0, 1.2 * seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return seconds * _PATIENCE
    assert process.returncode == 0
    return time.monotonic() - began


class Rounds:
    """A spool that grows from round to round, and an ingest that is killed in each.

    In each round two observers seal segments of the same changes on three dates, with garbage; now and then a segment that is there already
    comes again under another name, and the checkpoint is deleted.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.spool, self.audit = folder / "spool", folder / "audit"
        self.spool.mkdir(parents=True)
        self.ids: set[str] = set()
        self.garbage: set[str] = set()
        self._chance = chance
        self._round = 0
        self._seconds = 3.0

    def play(self, spark: SparkSession) -> None:
        """One round. It is killed at a random moment of the time that an ingest has taken so far."""
        self._fill()
        with ingesting(self.spool, self.audit, spark) as process:
            self._seconds = killed(process, self._chance, self._seconds)
        end_what_it_began(spark)

    def assert_none_twice(self, spark: SparkSession) -> None:
        """Every reader sees no id twice, and none that is not in the spool."""
        if (self.audit / "transitions").is_dir():
            ids = ids_seen(spark, self.audit, "transitions")
            assert len(set(ids)) == len(ids)
            assert self.ids.issuperset(ids)

    def assert_complete(self, spark: SparkSession) -> None:
        """Every reader sees each id once, and each line of garbage in the quarantine."""
        assert ids_seen(spark, self.audit, "transitions") == sorted(self.ids)
        ids = ids_seen(spark, self.audit, "quarantine")
        assert len(set(ids)) == len(ids)
        assert {row.line for row in spark.read.parquet(f"{self.audit}/quarantine").collect()} == self.garbage

    def _fill(self) -> None:
        first, self._round = self._round * _CHANGES + 1, self._round + 1
        numbers = range(first, first + _CHANGES)
        garbage = f"garbage {self._round}"
        segments = []
        for observer in ("jm-0", "jm-1"):
            records = [transition(n, NOON + timedelta(days=n % _DATES), observer=observer) for n in numbers]
            self.ids.update(record.id for record in records)
            self.garbage.add(garbage)
            for start in range(0, _CHANGES, _CHANGES // 2):
                part = records[start : start + _CHANGES // 2]
                segments.append(seal(self.spool, observer, first + start, part, lines=[garbage.encode()]))
        if self._chance.random() < 0.3:
            again = self._chance.choice(segments)
            shutil.copy(again, again.with_name(f"9{self._round:015d}-9{self._round:015d}.jsonl.gz"))
        if self._chance.random() < 0.1:
            shutil.rmtree(self.audit / "_checkpoints", ignore_errors=True)


def end_what_it_began(spark: SparkSession) -> None:
    """Do on a surviving JVM what its end would do."""
    for query in spark._jsparkSession.sharedState().activeStreamingQueries().values():
        if query is not None:  # it has ended just now
            query.stop()
    spark.sparkContext.cancelAllJobs()


@contextmanager
def lending_its_jvm(spark: SparkSession) -> Iterator[None]:
    """While others are called back from the JVM of this session; in the end this process is again."""
    try:
        yield
    finally:
        gateway: Any = spark.sparkContext._gateway
        if (server := vars(gateway).get("_callback_server")) is not None:
            java = gateway.java_gateway_server
            java.resetCallbackClient(java.getCallbackClient().getAddress(), server.port)
