"""Ingest killed with -9 at random moments: `python -m tests.bench.killed_ingest [ROUNDS] [SEED]`.

In most rounds its Python is killed, which alone makes files visible, and the JVM goes on; in every tenth both are, just after they started.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

from sidecar.audit.ingest import ingest
from sidecar.audit.session import spark_session
from tests.audit.killing import Rounds, lending_its_jvm
from tests.bench.stage import Table

_ROUNDS = 200
_OWN_JVM_EVERY = 10
_LOOK_EVERY = 10


def main(rounds: int, seed: int) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, spark_session("local[2]") as spark:
        scene = Rounds(Path(folder), random.Random(seed))
        with lending_its_jvm(spark):
            for number in range(1, rounds + 1):
                scene.play(spark, own_jvm=number % _OWN_JVM_EVERY == 0)
                if number % _LOOK_EVERY == 0:
                    scene.assert_none_twice(spark)
                    print(
                        f"round {number}: {scene.killed} killed, {time.monotonic() - began:.0f} s",
                        file=sys.stderr,
                        flush=True,
                    )
        ingest(spark, str(scene.spool), str(scene.audit))
        scene.assert_complete(spark)
    table = Table("rounds", "killed at work", "changes", "each id once for Spark, DuckDB, pyarrow", "seed", "s")
    table.row(rounds, scene.killed, len(scene.ids), "yes", seed, f"{time.monotonic() - began:.0f}")
    table.end()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(arguments[0] if arguments else _ROUNDS, arguments[1] if len(arguments) > 1 else random.randrange(2**32))
