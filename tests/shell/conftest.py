"""What tests of the pages and of the API are played on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shell.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.stop()
