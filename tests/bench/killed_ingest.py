"""Ingest killed with -9 at random moments: `python -m tests.bench.killed_ingest [ROUNDS] [SEED]`.

In most rounds its Python is killed, which alone makes files visible, and the JVM goes on; in every tenth both are, just after they started.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.session import spark_session
from tests.audit.killing import Rounds, lending_its_jvm
from tests.bench.stage import Table

_ROUNDS = 200
_OWN_JVM_EVERY = 10
_LOOK_EVERY = 10


def main(rounds: int, seed: int) -> None:
    began, seconds = time.monotonic(), list[float]()
    with tempfile.TemporaryDirectory() as folder, spark_session("local[2]") as spark:
        scene = Rounds(Path(folder), random.Random(seed))
        with lending_its_jvm(spark):
            for number in range(1, rounds + 1):
                started = time.monotonic()
                scene.play(spark, own_jvm=number % _OWN_JVM_EVERY == 0)
                seconds.append(time.monotonic() - started)
                if number % _LOOK_EVERY == 0:
                    scene.assert_none_twice(spark)
                    print(
                        f"round {number}: {scene.killed} killed, {time.monotonic() - began:.0f} s, a round {_median(seconds):.1f} s",
                        file=sys.stderr,
                        flush=True,
                    )
        ingest(spark, str(scene.spool), str(scene.audit))
        scene.assert_complete(spark)
    table = Table(
        "rounds", "killed", "changes", "each id once for Spark, DuckDB, pyarrow", "seed", "s", "first rounds", "last"
    )
    first, last = (f"{_median(each):.1f} s" for each in (seconds[:_LOOK_EVERY], seconds))
    table.row(rounds, scene.killed, len(scene.ids), "yes", seed, f"{time.monotonic() - began:.0f}", first, last)
    table.end()


def _median(seconds: list[float]) -> float:
    """Of the last rounds."""
    return statistics.median(seconds[-_LOOK_EVERY:])


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(arguments[0] if arguments else _ROUNDS, arguments[1] if len(arguments) > 1 else random.randrange(2**32))
