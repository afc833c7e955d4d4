"""Somebody who does a thing again and again while a test looks at something else."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count


@contextmanager
def repeating(act: Callable[[int], object], every: float) -> Iterator[None]:
    """Each `every` seconds `act` is called, with how often it was before, until the block ends."""
    ended = threading.Event()

    def go_on() -> None:
        for number in count():
            if ended.wait(every):
                return
            act(number)

    actor = threading.Thread(target=go_on)
    actor.start()
    try:
        yield
    finally:
        ended.set()
        actor.join()
