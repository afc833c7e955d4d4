"""What more than one of these tests begins with."""

from collections.abc import Iterator

import pytest

from tests.kit.leaders import Leaders
from tests.lab.zookeeper import ZooKeeper


@pytest.fixture
def leaders(zookeeper: ZooKeeper) -> Iterator[Leaders]:
    """A cluster with its first leader."""
    running = Leaders(zookeeper.address)
    running.start()
    yield running
    running.stop()
