"""The files below a folder in which others are at work."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def files_below(folder: Path, suffix: str = "") -> Iterator[Path]:
    """Those whose names end in `suffix`. A folder that is removed meanwhile holds none: `Path.rglob` raises there."""
    return (Path(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(suffix))


@contextmanager
def folders_that_come_and_go(top: Path) -> Iterator[None]:
    """Meanwhile a thread makes and removes folders below `top` as fast as it can."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            for number in range(20):
                (top / f"{number}" / "inner").mkdir(parents=True)
            for number in range(20):
                shutil.rmtree(top / f"{number}")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
