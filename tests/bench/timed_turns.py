"""Our command, whose owner's thread notes its longest turns: `python -m tests.bench.timed_turns run --config FILE`."""

import os
import time
from pathlib import Path

from sidecar.app.loop import Loop
from sidecar.cli.main import main
from sidecar.core.observations import Observation

_LONG_SECONDS = 0.05
_FILE = "FLINK_HA_SIDECAR_TURNS"


def _time_turns(file: Path) -> None:
    """Append the seconds of each long turn, and those of CPU, to `file`."""
    turn = Loop._turn

    def timed(loop: Loop, observations: list[Observation], *, ticks: bool = False) -> None:
        began, worked = time.monotonic(), time.thread_time()
        turn(loop, observations, ticks=ticks)
        if (took := time.monotonic() - began) >= _LONG_SECONDS:
            with file.open("a") as lines:
                lines.write(f"{took:.3f} {time.thread_time() - worked:.3f}\n")

    Loop._turn = timed  # type: ignore[method-assign,assignment]  # to measure it, without a part of the product for that


if __name__ == "__main__":
    _time_turns(Path(os.environ.pop(_FILE)))
    main()
