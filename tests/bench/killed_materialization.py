"""The materialization killed with -9 at random moments: `python -m tests.bench.killed_materialization [KILLS] [SEED]`.

Its Python is killed, which alone makes files visible, and the JVM goes on. The log gets new and late records between rounds.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

from sidecar.audit.spark.session import spark_session
from tests.audit.killed_materialization import Rounds
from tests.audit.killing import lending_its_jvm
from tests.bench.stage import Table

_KILLS = 200
_KILLS_A_ROUND = 20


def main(kills: int, seed: int) -> None:
    began = time.monotonic()
    rounds = tried = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        spark_session("local[2]", {"spark.sql.shuffle.partitions": "2"}) as spark,
    ):
        scene = Rounds(Path(folder), random.Random(seed))
        with lending_its_jvm(spark):
            while scene.killed < kills:
                scene.play(spark, _KILLS_A_ROUND)
                rounds, tried = rounds + 1, tried + _KILLS_A_ROUND
                print(
                    f"round {rounds}: {scene.killed} killed, {time.monotonic() - began:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    table = Table("rounds", "runs", "killed at work", "answers: before or after, then as from scratch", "seed", "s")
    table.row(rounds, tried, scene.killed, "yes", seed, f"{time.monotonic() - began:.0f}")
    table.end()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(arguments[0] if arguments else _KILLS, arguments[1] if len(arguments) > 1 else random.randrange(2**32))
