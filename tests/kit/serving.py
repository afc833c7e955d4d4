"""A server that serves as long as a block lasts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Startable(Protocol):
    """What can be started, and killed whether it runs or not."""

    def start(self) -> None: ...

    def kill(self) -> None: ...


S = TypeVar("S", bound=Startable)


@contextmanager
def serving(server: S) -> Iterator[S]:
    """`server`, which serves; it is killed in the end."""
    try:
        server.start()
        yield server
    finally:
        server.kill()
