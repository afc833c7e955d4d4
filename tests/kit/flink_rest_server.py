"""A small HTTP server that answers as Flink's REST server does, or as none ever should."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, NamedTuple, Self

_SECONDS: Final = 30.0


class Answer(NamedTuple):
    """One answer: `raw` bytes are sent as they are, instead of a status and a body."""

    body: object = b""
    status: int = 200
    headers: str = ""
    raw: Callable[[threading.Event], Iterable[bytes]] | None = None

    def parts(self, stopping: threading.Event) -> Iterable[bytes]:
        """What goes over the wire."""
        if self.raw:
            return self.raw(stopping)
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        # In one piece: between two the kernel waits for the client's acknowledgement.
        return [f"HTTP/1.1 {self.status} X\r\nContent-Length: {len(body)}\r\n{self.headers}\r\n".encode() + body]


def silence(stopping: threading.Event) -> Iterable[bytes]:
    """Takes the request, and says nothing."""
    stopping.wait(_SECONDS)
    return []


def drip(stopping: threading.Event) -> Iterable[bytes]:
    """A header that never ends: a byte now and then."""
    yield b"HTTP/1.1 200 OK\r\nX: "
    while not stopping.wait(0.05):
        yield b"x"


class RestServer:
    """Answers each GET of a path with the next of its answers, the last one again and again; without any, as Flink does: status 404.

    A connection is kept until the client closes it, or until raw bytes were sent over it.
    """

    def __init__(self, answers: dict[str, list[Answer]], tls: ssl.SSLContext | None = None) -> None:
        self._answers = {path: list(queue) for path, queue in answers.items()}
        self._tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self.address = f"http{'s' if tls else ''}://127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(_SECONDS)

    @property
    def connected(self) -> int:
        """How many connections there have been."""
        return len(self._connections)

    def hang_up(self) -> None:
        """Close all connections, as a server does with those that are idle."""
        for connection in self._connections:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # a TLS socket's own makes its reader fail

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _answer(self, plain: socket.socket) -> None:
        plain.settimeout(_SECONDS)
        with plain, suppress(OSError):
            connection = self._tls.wrap_socket(plain, server_side=True) if self._tls else plain
            self._connections[self._connections.index(plain)] = connection
            with connection:
                while request := _request(connection):
                    answer = self._next(request.split()[1].decode())
                    for part in answer.parts(self._stopping):
                        connection.sendall(part)
                    if answer.raw:
                        return

    def _next(self, path: str) -> Answer:
        with self._lock:
            self.asked.append(path)
            answers = self._answers.get(path) or [Answer({"errors": ["Not found."]}, 404)]
            return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def dropping(port: int = 0) -> Iterator[str]:
    """The address of a port at which no connection is established: its queue is full, and what comes is dropped, as a firewall does."""
    with socket.create_server(("127.0.0.1", port), backlog=0) as listener, ExitStack() as stack:
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _request(connection: socket.socket) -> bytes:
    """The next request; empty: the client has closed the connection."""
    request = b""
    while b"\r\n\r\n" not in request and (part := connection.recv(4096)):
        request += part
    return request


JOB: Final = "c6d2260270140fecffd94e5d8dc8d655"

# As Flink 2.3.0 and 1.20.5 answered after a leader was killed, without what nobody reads.
RESTORED: Final[dict[str, Any]] = {
    "counts": {"restored": 1, "total": 0, "in_progress": 0, "completed": 0, "failed": 0},
    "latest": {
        "completed": None,
        "savepoint": None,
        "failed": None,
        "restored": {
            "id": 2,
            "restore_timestamp": 1795305963816,
            "is_savepoint": False,
            "external_path": f"file:/data/checkpoints/{JOB}/chk-2",
        },
    },
    "history": [],
}
NEVER_RESTORED: Final[dict[str, Any]] = {
    "counts": {"restored": 0, "total": 0, "in_progress": 0, "completed": 0, "failed": 0},
    "latest": {"completed": None, "savepoint": None, "failed": None, "restored": None},
    "history": [],
}
ELECTING: Final = Answer(
    {"errors": ["Service temporarily unavailable due to an ongoing leader election. Please refresh."]}, 503
)
INITIALIZING: Final = Answer(
    {
        "errors": [
            "Internal server error.",
            (
                "<Exception on server side:\norg.apache.flink.runtime.dispatcher.UnavailableDispatcherOperationException: Unable to get "
                "JobMasterGateway for initializing job. The requested operation is not available while the JobManager is initializing.\n"
                "\tat org.apache.flink.runtime.dispatcher.Dispatcher.getJobMasterGateway(Dispatcher.java:2437)\n"
            ),
        ]
    },
    500,
)
UNKNOWN_JOB: Final = Answer(
    {
        "errors": [
            (
                f"org.apache.flink.runtime.rest.NotFoundException: Job {JOB} not found\n"
                "\tat org.apache.flink.runtime.rest.handler.job.checkpoints.AbstractCheckpointStatsHandler.lambda$handleRequest$2\n"
            )
        ]
    },
    404,
)
THREADS: Final[dict[str, Any]] = {
    "threadInfos": [
        {
            "threadName": "main",
            "stringifiedThreadInfo": '"main" Id=1 WAITING\n\tat java.base@17.0.15/jdk.Unsafe.park\n',
        },
        {"threadName": "evil\u001b[2J", "stringifiedThreadInfo": '"evil\u001b[2J" Id=2 RUNNABLE \ud800\n'},
    ]
}


def overview(name: str = "orders", state: str = "RUNNING") -> Answer:
    """What Flink says of all jobs."""
    return Answer({"jobs": [{"jid": JOB, "name": name, "state": state, "start-time": 1795305962966}]})


def flink(**other: list[Answer]) -> dict[str, list[Answer]]:
    """The answers of a Flink that has restored its job, with `checkpoints`, `jobs`, `config` or `threads` in place of them."""
    return {
        f"/jobs/{JOB}/checkpoints": other.get("checkpoints", [Answer(RESTORED)]),
        f"/jobs/{JOB}/checkpoints/config": other.get("config", [Answer({"mode": "exactly_once", "interval": 2000})]),
        "/jobs/overview": other.get("jobs", [overview()]),
        "/jobmanager/thread-dump": other.get("threads", [Answer(THREADS)]),
    }
