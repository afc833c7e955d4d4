"""How far a request to a REST server got: real sockets that hang, refuse, drop, reset, and answer."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from sidecar.core.reach import Reach
from tests.kit.certificates import Authority
from tests.kit.flink_rest_server import ELECTING, Answer, RestServer, dropping, silence
from tests.kit.pictured_flink import pictured
from tests.sinks.pictures.conftest import Take

OVERVIEW, JOBS, CONFIG = "/overview", "/jobs/overview", "/jobmanager/config"


def address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def refusing() -> Iterator[str]:
    """The process is gone, and its machine is there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield address(taken)


@contextmanager
def stopped() -> Iterator[str]:
    """The kernel accepts, the process never does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield address(listener)


@contextmanager
def closing(*, linger: bool) -> Iterator[str]:
    """Accepts, and ends each connection at once: with a reset, or in order."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    if linger:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield address(listener)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Answers everything so."""
    with RestServer({path: [answer] for path in (OVERVIEW, JOBS, CONFIG, "/taskmanagers")}) as server:
        yield server.address


SERVERS: dict[str, tuple[Callable[[], AbstractContextManager[str]], Reach]] = {
    "refuses": (refusing, Reach.UNREACHABLE),
    "drops": (dropping, Reach.UNREACHABLE),
    "is stopped": (stopped, Reach.SILENT),
    "resets": (lambda: closing(linger=True), Reach.SILENT),
    "closes": (lambda: closing(linger=False), Reach.SILENT),
    "speaks something else": (lambda: answering(Answer(raw=lambda _: iter([b"SSH-2.0-x\r\n"]))), Reach.SILENT),
    "503": (lambda: answering(ELECTING), Reach.ANSWERS),
    "redirects": (lambda: answering(Answer({}, 302)), Reach.ANSWERS),
    "says nonsense": (lambda: answering(Answer({"a": 1})), Reach.ANSWERS),
}


@pytest.mark.parametrize(("server", "reach"), SERVERS.values(), ids=[*SERVERS])
def test_so_far_a_request_gets(server: Callable[[], AbstractContextManager[str]], reach: Reach, take: Take) -> None:
    """Whatever answers over HTTP works. The time at which it was asked is that of the request, not of its failure."""
    with server() as where:
        taken = take(where)
    assert taken.picture is None
    assert taken.problem
    assert taken.reach is reach
    assert taken.asked_at
    waited = taken.at.steady - taken.asked_at.steady
    assert (waited >= 1_900_000) is (server in {dropping, stopped})


def test_a_picture_is_an_answer(take: Take) -> None:
    """And one that cannot be completed, because the server hangs after its first answer, too: it works, and is slow."""
    with RestServer(pictured()) as server:
        assert take(server.address).reach is Reach.ANSWERS
    with RestServer({**pictured(), JOBS: [Answer(raw=silence)]}) as slow:
        taken = take(slow.address)
    assert taken.picture is None
    assert taken.reach is Reach.ANSWERS


def test_a_kept_connection_does_not_hide_the_end_of_the_process(take: Take) -> None:
    """The next request finds it closed, and nobody who listens."""
    with RestServer(pictured()) as server:
        assert take(server.address).picture
    assert take(server.address).reach is Reach.UNREACHABLE


def test_a_kept_connection_that_hangs_is_made_anew(take: Take) -> None:
    """A slow answer of the dispatcher is no silence of the process: the next request asks what the server itself knows."""
    other = {OVERVIEW: [Answer({"slots-total": 4, "slots-available": 1}), Answer(raw=silence)]}
    with RestServer({**pictured(), **other}) as server:
        assert take(server.address).reach is Reach.ANSWERS
        assert take(server.address).reach is Reach.SILENT
        assert take(server.address).reach is Reach.ANSWERS
        assert server.asked.count(CONFIG) == 2


@pytest.mark.parametrize("where", ["nowhere", "http://127.0.0.1:22", "http://169.254.169.254:8081"])
def test_where_nothing_is_sent_nothing_is_known(take: Take, where: str) -> None:
    """An address that no JobManager can have."""
    taken = take(where)
    assert (taken.reach, taken.asked_at) == (None, None)


def test_a_server_of_another_cluster_says_nothing_of_this_one(take: Take) -> None:
    """The address of a dead leader may be used again."""
    options = [{"key": "high-availability.cluster-id", "value": "/another"}]
    with RestServer({**pictured(), CONFIG: [Answer(options)]}) as server:
        taken = take(server.address)
    assert "another cluster" in (taken.problem or "")
    assert taken.reach is None


def test_a_host_without_an_address_cannot_be_reached(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is gone with its pod."""

    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    assert take("http://jm-0.jm:8081").reach is Reach.UNREACHABLE


def test_a_server_whose_certificate_is_not_trusted_answers(take: Take, tmp_path: Path) -> None:
    """In the language of TLS: what is wrong is not that it hangs. One that hangs in the handshake is silent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path / "authority").issue("server", "IP:127.0.0.1"))
    with RestServer(pictured(), context) as server:
        assert take(server.address).reach is Reach.ANSWERS
    with stopped() as where:
        assert take(where.replace("http:", "https:")).reach is Reach.SILENT
    with closing(linger=False) as where:
        assert take(where.replace("http:", "https:")).reach is Reach.SILENT
