"""A taker of pictures that runs, and what it answers."""

from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import MOST_HELD, PictureRequest
from sidecar.runtime.clock import Clock
from sidecar.settings import TlsSettings
from sidecar.sinks.pictures.picture_taker import PictureTaker
from tests.kit.cluster import CLUSTER
from tests.kit.waiting import PATIENCE_SECONDS

Take = Callable[..., PictureTaken]


@pytest.fixture
def taker() -> Iterator[Callable[[TlsSettings | None], tuple[PictureTaker, SimpleQueue[PictureTaken]]]]:
    """Starts takers, and stops them at the end."""
    takers = []

    def begin(tls: TlsSettings | None) -> tuple[PictureTaker, SimpleQueue[PictureTaken]]:
        answers = SimpleQueue[PictureTaken]()
        takers.append(PictureTaker(Clock(), tls))
        takers[-1].start(answers.put)
        return takers[-1], answers

    yield begin
    for each in takers:
        each.stop()


@pytest.fixture
def take(taker: Callable[[TlsSettings | None], tuple[PictureTaker, SimpleQueue[PictureTaken]]]) -> Take:
    """Takes one picture of the server at an address, and returns the answer, the only one."""
    running, answers = taker(None)

    def one(
        address: str, *first: str, thorough: bool = True, most: int = MOST_HELD, cluster: str = CLUSTER
    ) -> PictureTaken:
        running.take(PictureRequest(cluster, address, first, thorough=thorough, most=most))
        answer = answers.get(timeout=PATIENCE_SECONDS)
        assert answers.empty()
        return answer

    return one
