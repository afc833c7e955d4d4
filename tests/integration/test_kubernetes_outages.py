"""The Kubernetes driver and an API server, or the way there, that fails: all that happened is reported, in order, or how it ended."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sidecar.core.moment import SECOND
from sidecar.core.observations import ConfigMapObserved, SnapshotCompleted, ViewObserved
from sidecar.drivers.kubernetes import Access, KubernetesDriver, access
from tests.integration.conftest import RelayTo
from tests.kit.configmap_recorder import Recorder, drivers, version_of
from tests.kit.driver_recorder import CONNECTED, SUSPENDED, now
from tests.kit.impostor import Impostor
from tests.kit.kubernetes_server import Kubernetes, Namespace, exec_credential, program
from tests.kit.relay import Wire
from tests.kit.serving import serving
from tests.kit.waiting import LOADED_MACHINE_SECONDS

Watch = Callable[..., Recorder]

CLUSTER = "demo"
NAME = "demo-cluster-config-map"
DISPATCHER = "org.apache.flink.k8s.leader.dispatcher"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubernetes")


@pytest.fixture(scope="module")
def kubernetes(data: Path, apiserver: Path) -> Iterator[Kubernetes]:
    """An API server to be hurt: each test leaves it serving."""
    server = Kubernetes(data, apiserver)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def flink(kubernetes: Kubernetes) -> Namespace:
    """A namespace of this test's own."""
    return kubernetes.namespace(f"test-{uuid4()}")


@pytest.fixture
def wire(kubernetes: Kubernetes, relay_to: RelayTo) -> Wire:
    """A connection to the API server that can be hurt."""
    return relay_to(kubernetes.server.address)


@pytest.fixture
def watch(flink: Namespace) -> Iterator[Watch]:
    """Starts drivers, and stops them when the test is over."""
    with drivers() as start:
        yield lambda kubeconfig, namespace=flink: start(
            KubernetesDriver(Access(kubeconfig), namespace.name, CLUSTER, now)
        )


def put(flink: Namespace, count: int) -> list[tuple[str, str, str]]:
    """Change the ConfigMap `count` times."""
    return [version_of(flink.replace(NAME, {DISPATCHER: f"{time.time_ns()},a"}, "{}")) for _ in range(count)]


# -- the way there -----------------------------------------------------------------------------------------------------


def test_a_connection_that_breaks_loses_nothing_and_is_not_even_reported(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, wire: Wire
) -> None:
    """Where the next request succeeds, the view was never lost; what happened between them is reported, in order."""
    first = version_of(flink.create(NAME))
    recorder = watch(kubernetes.kubeconfig(server=f"https://{wire.address}"))
    recorder.wait_complete()
    written = [first]
    for _ in range(3):
        wire.cut()
        written += put(flink, 5)
        recorder.wait_last(written[-1])
        written += put(flink, 1)
        # Heard by the new watch: a cut before it is there would break the next request too.
        recorder.wait_last(written[-1])
    assert recorder.versions() == written
    assert recorder.view() == [CONNECTED]


def test_what_happened_while_nobody_could_look_is_reported_in_order_afterwards(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, wire: Wire
) -> None:
    """The API server remembers: changes, the deletion, and the new ConfigMap are all reported, between CONNECTED and the snapshot's end."""
    written: list[tuple[str, str | None, str]] = [version_of(flink.create(NAME))]
    recorder = watch(kubernetes.kubeconfig(server=f"https://{wire.address}"))
    recorder.wait_complete()
    wire.fall_silent()
    wire.cut()
    recorder.wait_view(CONNECTED, SUSPENDED)
    written += put(flink, 3)
    flink.delete(NAME)
    written += [(NAME, None, ""), version_of(flink.create(NAME))]
    written += put(flink, 3)
    wire.speak_again()
    recorder.wait_complete(2)
    assert recorder.versions() == written
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]
    since = [type(observation) for observation in recorder.all][-10:]
    assert since == [ViewObserved, *[ConfigMapObserved] * 8, SnapshotCompleted]
    written += put(flink, 1)
    recorder.wait(lambda: recorder.versions() == written)


# -- the server --------------------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_and_comes_back(watch: Watch, kubernetes: Kubernetes, flink: Namespace) -> None:
    """SUSPENDED at once; when it is there again, all is reported anew, and then what changes. Twice over."""
    written = [version_of(flink.create(NAME))]
    recorder = watch(kubernetes.kubeconfig())
    recorder.wait_complete()
    for times in (1, 2):
        kubernetes.server.kill()
        recorder.wait_view(*[CONNECTED, SUSPENDED] * times)
        kubernetes.server.start()
        recorder.wait_complete(times + 1)
        written += put(flink, 5)
        recorder.wait_last(written[-1])
    assert recorder.versions() == written
    assert recorder.view() == [CONNECTED, *[SUSPENDED, CONNECTED] * 2]


def test_a_server_that_freezes_is_found_out(watch: Watch, kubernetes: Kubernetes, flink: Namespace) -> None:
    """SUSPENDED within 15 s though nothing breaks; a driver that waits for it can be stopped; when it goes on, so does everything."""
    written = [version_of(flink.create(NAME))]
    recorder, other = watch(kubernetes.kubeconfig()), watch(kubernetes.kubeconfig())
    recorder.wait_complete()
    other.wait_complete()
    kubernetes.server.pause()
    frozen = now()
    try:
        other.wait_view(CONNECTED, SUSPENDED)
        stopped = now()
        other.driver.stop()
        assert now().steady - stopped.steady < (5 + LOADED_MACHINE_SECONDS) * SECOND
        recorder.wait_view(CONNECTED, SUSPENDED)
        assert recorder.seconds_until(SUSPENDED, frozen) < 15 + LOADED_MACHINE_SECONDS
        time.sleep(max(0, 12 - (now().steady - frozen.steady) / SECOND))  # it is frozen for 12 s at least
    finally:
        kubernetes.server.resume()
    recorder.wait_complete(2)
    written += put(flink, 5)
    recorder.wait_last(written[-1])
    assert recorder.versions() == written
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]


def test_what_the_server_has_forgotten_is_reported_as_it_ended(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, wire: Wire
) -> None:
    """With etcd compacted and the server started anew (410 Gone), what stands there now is reported, and that what is gone is."""
    other = kubernetes.namespace(f"{flink.name}-2")
    first = [version_of(namespace.create(NAME)) for namespace in (flink, other)]
    kubeconfig = kubernetes.kubeconfig(server=f"https://{wire.address}")
    recorders = [watch(kubeconfig, namespace) for namespace in (flink, other)]
    for recorder in recorders:
        recorder.wait_complete()
    wire.fall_silent()
    wire.cut()
    for recorder in recorders:
        recorder.wait_view(CONNECTED, SUSPENDED)
    for namespace in (flink, other):
        put(namespace, 5)
        namespace.delete(NAME)
    flink.create(NAME)
    ends = [put(flink, 3)[-1], (NAME, None, "")]
    kubernetes.server.kill()
    kubernetes.etcd.compact()
    kubernetes.server.start()
    wire.speak_again()
    for recorder, begin, end in zip(recorders, first, ends, strict=True):
        recorder.wait_complete(2)
        assert recorder.versions() == [begin, end]
    following = [put(flink, 1)[0], version_of(other.create(NAME))]
    for recorder, version in zip(recorders, following, strict=True):
        recorder.wait_last(version)
        assert len(recorder.versions()) == 3


def test_a_store_that_was_set_back_is_seen_as_it_is(
    watch: Watch, kubernetes: Kubernetes, data: Path, flink: Namespace, tmp_path: Path
) -> None:
    """After a restore from a backup, a watch from the old future would be silent for ever: what stands there is seen, and what follows."""
    first = version_of(flink.create(NAME))
    kubernetes.kill()
    shutil.copytree(data / "etcd", tmp_path / "backup")
    kubernetes.start()
    recorder = watch(kubernetes.kubeconfig())
    recorder.wait_complete()
    flink.delete(NAME)
    flink.create(NAME)
    later = put(flink, 100)[-1]
    recorder.wait_last(later)
    kubernetes.kill()
    shutil.rmtree(data / "etcd")
    shutil.copytree(tmp_path / "backup", data / "etcd")
    kubernetes.start()
    recorder.wait_last(first)
    following = put(flink, 3)
    recorder.wait(lambda: recorder.versions()[-4:] == [first, *following])


# -- a server that says what no API server says ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lie",
    [
        b"not JSON\n",
        b"[]\n",
        b"[" * 100_000 + b"\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"x"}}}\n',
        b'{"type":"MODIFIED","object":{"metadata":{"name":7}}}\n',
        b'{"type":"MODIFIED","object":{"metadata":{"name":"\xff\xfe"}}}\n',
        b'{"type":"ERROR","object":{"code":500,"message":"etcd is full"}}\n',
        b'{"type":"ERROR","object":null}\n',
        b'{"type":"NEWS","object":{}}\n',
        b'{"type":"ADDED",' + b" " * (9 << 20),
    ],
    ids=lambda lie: str(lie[:45]),
)
def test_a_watch_that_makes_no_sense_is_said_and_everything_read_anew(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture, lie: bytes
) -> None:
    """The driver neither ends nor believes it: one short line, another look, in growing intervals."""
    with serving(Impostor(lie, NAME)) as impostor:
        recorder = watch(impostor.kubeconfig(tmp_path))
        recorder.wait(lambda: len(recorder.versions()) == 3)
        recorder.driver.stop()
    looks = [int(version[2]) for version in recorder.versions()]
    assert looks == sorted(looks)  # a watch that merely failed gets a second chance to report what the look showed
    assert recorder.view() == [CONNECTED]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1, lines
    assert len(lines[0]) < 300
    assert "Traceback" not in caplog.text


def test_after_sense_was_made_again_the_watch_is_believed(watch: Watch, tmp_path: Path) -> None:
    """Bookmarks and events without the parts that nobody needs are taken as they are."""
    metadata = {"name": NAME, "uid": "1", "resourceVersion": "20", "labels": None, "annotations": {"x": 1}}
    events = [
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "19", "uid": ""}}},
        {
            "type": "MODIFIED",
            "object": {"metadata": metadata, "data": {DISPATCHER: None, "address": "a", "x": {"y": []}}},
        },
        {"type": "DELETED", "object": {"metadata": {**metadata, "resourceVersion": "21"}, "data": None}},
    ]
    news = b"\n".join(json.dumps(event).encode() for event in events) + b"\n"
    with serving(Impostor(news, NAME)) as impostor:
        recorder = watch(impostor.kubeconfig(tmp_path))
        recorder.wait_gone(NAME)
        recorder.driver.stop()
    assert [
        (config_map.uid, config_map.resource_version, config_map.data) for config_map in recorder.config_maps()[:3]
    ] == [("1", "1", {}), ("1", "20", {"address": "a"}), (None, "", {})]


def test_a_token_that_expires_is_replaced_before_the_view_is_lost(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is refused and has a new token says who it is once more, at once."""
    monkeypatch.setattr(access, "_READ_AGAIN_SECONDS", 0.0)  # else the test would have to last longer than that
    token = tmp_path / "token"
    token.write_text("first")
    saying = exec_credential("%s")
    with serving(Impostor(b"", NAME)) as impostor:
        impostor.token = "first"
        config = json.loads(impostor.kubeconfig(tmp_path).read_text())
        (tmp_path / "kubeconfig").write_text(
            json.dumps(config | {"users": [{"name": "x", "user": program(f"printf '{saying}' \"$(cat {token})\"")}]})
        )
        recorder = watch(tmp_path / "kubeconfig")
        recorder.wait_complete()
        token.write_text("second")
        impostor.token = "second"
        recorder.wait(lambda: len(recorder.versions()) == 3)
        recorder.driver.stop()
    assert recorder.view() == [CONNECTED]
