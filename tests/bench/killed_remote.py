"""What changes a log in an object store, killed with -9 at random moments: `python -m tests.bench.killed_remote [ROUNDS] [SEED]`.

Ingests, compactions and materializations; the JVM survives. In some rounds nobody is killed, but the store is, and starts again. A plain
reader (DuckDB) reads all the time; after each round, ours reads the log too, which another writer has not repaired yet.
"""

import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from sidecar.audit.spark.session import spark_session
from tests.audit.killing import lending_its_jvm
from tests.audit.remote_killing import PlainReader, RemoteRounds
from tests.bench.stage import Table
from tests.kit.s3_server import S3Server, reach

_ROUNDS = 50
_LOOK_EVERY = 10


def main(rounds: int, seed: int) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = S3Server(Path(folder))
        server.start()
        os.environ.update(reach(server.url))
        try:
            spark = stack.enter_context(spark_session("local[2]", object_store=True))
            scene = RemoteRounds(server.bucket, Path(folder), random.Random(seed), restart=partial(_restart, server))
            reader = PlainReader(scene)
            with lending_its_jvm(spark):
                for number in range(1, rounds + 1):
                    scene.play(spark)
                    scene.assert_right(spark)
                    if number == 1:  # there is a log to read
                        reader.start()
                    if number % _LOOK_EVERY == 0:
                        print(
                            f"round {number}: {scene.kills}, {time.monotonic() - began:.0f} s",
                            file=sys.stderr,
                            flush=True,
                        )
            reader.stop()
            scene.complete(spark)
            scene.assert_complete(spark)
        finally:
            server.kill()
    table = Table(
        *(
            "rounds",
            "ingests killed",
            "compactions killed",
            "materializations killed",
            "restarts of the store",
            "changes",
        ),
        *("plain reads", "that failed", "wrong", "each id once at the end", "seed", "s"),
    )
    figures = (scene.restarts, len(scene.ids), reader.reads, reader.failed, len(reader.wrong), "yes", seed)
    table.row(rounds, *scene.kills.values(), *figures, f"{time.monotonic() - began:.0f}")
    table.end()
    assert not reader.wrong, reader.wrong


def _restart(server: S3Server) -> None:
    server.kill()
    server.start()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(arguments[0] if arguments else _ROUNDS, arguments[1] if len(arguments) > 1 else random.randrange(2**32))
