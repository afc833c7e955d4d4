"""The gate sees what it fetches, and nothing else: a plugin of pytest, loaded by tests/conftest.py.

With `--fetched`, the tests of a tier run on a cache that has that tier's pieces only, as links into the user's cache. A test that needs a
piece of another tier does not find it, and one that fetches something by itself fails.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from sidecar.runtime.folders import cache_folder
from tests.kit.groups import Tier
from tests.kit.kubernetes_server import API_SERVER

_CACHE: Final = "FLINK_HA_SIDECAR_CACHE"
_API_SERVER: Final = "KUBEBUILDER_ASSETS"


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make test` gives."""
    parser.addoption(
        "--fetched", action="store_true", help="with a cache of the tier's pieces alone; nothing is fetched"
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Called once in each process: workers inherit the environment of the first."""
    if config.getoption("--fetched") and not hasattr(config, "workerinput"):
        from tests.kit.fetch import PIECES

        tier = config.getoption("--tier") or Tier.LONG
        entries = [piece.entry for piece in PIECES.values() if piece.tier in {Tier.GATE, tier}]
        os.environ[_CACHE] = str(link(entries, config.cache.mkdir(tier)))
        # Where it is still being built, a test that needs it fails at once, and does not build another.
        os.environ.setdefault(_API_SERVER, str(cache_folder() / API_SERVER))


def link(entries: Iterable[str], folder: Path) -> Path:
    """`folder`, with links to those `entries` of the cache (patterns) that are there, and nothing else."""
    shutil.rmtree(folder)
    folder.mkdir()
    for place in chain.from_iterable(map(cache_folder().glob, entries)):
        (folder / place.name).symlink_to(place)
    return folder


@pytest.fixture(autouse=True)
def _nothing_is_fetched(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--fetched`, a test that brings something into the cache has failed."""
    if not request.config.getoption("--fetched"):
        yield
        return
    cache = cache_folder()
    before = {*cache.iterdir()}
    yield
    new = [each.name for each in cache.iterdir() if each not in before and each.is_dir()]
    assert new == [], "a test fetched what is not among the pieces of this tier (tests/kit/fetch.py)"
