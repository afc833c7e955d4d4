"""A client of a ZooKeeper that is closed in the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient


@contextmanager
def connected(hosts: str, *, seconds: float = 10, **options: Any) -> Iterator[KazooClient]:
    """A client that is connected within so many seconds. `options` are KazooClient's."""
    client = KazooClient(hosts, **options)
    try:
        client.start(seconds)
        yield client
    finally:
        client.stop()
        client.close()
