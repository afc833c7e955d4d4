"""An API server that has too much to do (API Priority and Fairness): it is asked no sooner than it wants to be, and that is logged once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.drivers.kubernetes import Access, KubernetesDriver, expectations
from sidecar.drivers.kubernetes.access import ApiError
from sidecar.drivers.kubernetes.api import Api, Selector
from tests.kit.configmap_recorder import Recorder, drivers, said
from tests.kit.driver_recorder import CONNECTED, SUSPENDED, now
from tests.kit.impostor import Impostor
from tests.kit.serving import serving
from tests.kit.waiting import wait_for

Watch = Callable[[], Recorder]

NAME = "demo-cluster-config-map"
BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n'


@pytest.fixture
def server() -> Iterator[Impostor]:
    with serving(Impostor(BOOKMARK, NAME)) as impostor:
        impostor.version, impostor.pause = 1, 0.02
        yield impostor


@pytest.fixture
def watch(server: Impostor, tmp_path: Path) -> Iterator[Watch]:
    """Starts drivers, and stops them when the test is over."""
    with drivers() as start:
        access = Access(server.kubeconfig(tmp_path))
        yield lambda: start(KubernetesDriver(access, "flink", "demo", now))


def shortest_pause(server: Impostor) -> float:
    """Seconds between two of the first three attempts."""
    one, two, three = server.throttled_at[:3]
    return min(two - one, three - two)


def test_nobody_asks_again_before_the_api_server_wants_it(
    server: Impostor, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be seen meanwhile, one line says why and for how long, and then it is seen."""
    server.retry_after = "1"
    recorder = watch()
    recorder.wait_view(SUSPENDED)
    wait_for("three attempts", lambda: len(server.throttled_at) >= 3)
    server.retry_after = None
    recorder.wait_complete()
    assert shortest_pause(server) >= 1.0
    assert recorder.view() == [SUSPENDED, CONNECTED]
    line = "the API server throttles requests (429, API Priority and Fairness): not asked again for 1 s"
    assert len(said(caplog, line)) == 1


def test_a_watch_goes_on_while_lists_have_to_wait(
    server: Impostor, watch: Watch, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the watch delivers is true. Only the view is not confirmed, until a list is answered again."""
    monkeypatch.setattr(expectations, "_CONFIRM_SECONDS", 0.2)
    recorder = watch()
    recorder.wait(lambda: len(recorder.confirmed) >= 2)
    server.retry_after = "0"
    wait_for("three attempts", lambda: len(server.throttled_at) >= 3)
    confirmed, server.retry_after = len(recorder.confirmed), None
    recorder.wait(lambda: len(recorder.confirmed) > confirmed)
    assert shortest_pause(server) >= 1.0
    assert recorder.view() == [CONNECTED]
    assert server.watches == 1
    assert len(said(caplog, "the API server throttles requests (429, API Priority and Fairness)")) == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("86400", 60), ("9" * 500, 60), ("0", 1), ("soon", 1), ("-1", 1), ("", 1), ("²", 1)],
)
def test_how_long_to_wait_is_bounded(server: Impostor, tmp_path: Path, header: str, seconds: float) -> None:
    """Whatever is answered: a second at least, a minute at most."""
    server.retry_after = header.encode().decode("latin-1")
    with pytest.raises(ApiError) as refusal:
        Api(Access(server.kubeconfig(tmp_path)), "flink").read(Selector(name=NAME))
    assert refusal.value.throttled
    assert refusal.value.retry_after == seconds
