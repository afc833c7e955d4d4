"""Ingests and compactions in an object store, killed with -9 at random moments: `python -m tests.bench.killed_remote [ROUNDS] [SEED]`.

The JVM survives. After each round, our reader and a plain one (DuckDB) read the log, which another writer has not repaired yet.
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from sidecar.audit.spark.session import spark_session
from tests.audit.killing import lending_its_jvm
from tests.audit.remote_killing import RemoteRounds
from tests.bench.stage import Table
from tests.kit.s3_server import S3Server, reach

_ROUNDS = 50
_LOOK_EVERY = 10


def main(rounds: int, seed: int) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, spark_session("local[2]") as spark:
        server = S3Server(Path(folder))
        server.start()
        try:
            os.environ.update(reach(server.url))
            scene = RemoteRounds(server.bucket, Path(folder), random.Random(seed))
            with lending_its_jvm(spark):
                for number in range(1, rounds + 1):
                    scene.play(spark)
                    scene.assert_right(spark)
                    if number % _LOOK_EVERY == 0:
                        print(
                            f"round {number}: {scene.kills}, {time.monotonic() - began:.0f} s",
                            file=sys.stderr,
                            flush=True,
                        )
            scene.complete(spark)
            scene.assert_complete(spark)
        finally:
            server.kill()
    table = Table(
        *(
            "rounds",
            "ingests killed at work",
            "compactions killed at work",
            "changes",
            "wrong counts",
            "plain reads that failed",
        ),
        *("each id once at the end", "seed", "s"),
    )
    kills = (scene.kills["ingest"], scene.kills["compact"])
    table.row(rounds, *kills, len(scene.ids), 0, scene.failed_readers, "yes", seed, f"{time.monotonic() - began:.0f}")
    table.end()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(arguments[0] if arguments else _ROUNDS, arguments[1] if len(arguments) > 1 else random.randrange(2**32))
