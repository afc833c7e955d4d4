"""Reads how an ensemble of ZooKeeper and a Flink cluster in it are set up: the facts of `ha check`."""

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeVar

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Close, Connect
from kazoo.security import Permissions

from sidecar.core.flink.znode_paths import JOB_STORES, LATCH, LEADER, OWN_NAMES, job_ids
from sidecar.core.ha.finding import Unknown
from sidecar.core.ha.zookeeper_facts import Leftover, Member, Mode, Server, ServerReport, ZooKeeperFacts
from sidecar.core.sanitize import clean
from sidecar.drivers.zookeeper.blocking_session import GOODBYE_SECONDS, BlockingSession
from sidecar.drivers.zookeeper.security import Security
from sidecar.settings import ZooKeeperSettings

_SERVER_SECONDS: Final = 4.0
"""For a session with one server, and for its report."""
_SECONDS: Final = 20.0
"""For everything that is read through one session: what is not read by then is not known."""
_DEFAULT_TIMEOUT: Final = 60.0
"""Flink's, in seconds."""
_MOST_BYTES: Final = 16 << 10
_MOST_SIBLINGS: Final = 200
"""Clusters below the root, and jobs of the cluster, that are looked at. With more it is not known which are left behind."""
_MOST_ACLS: Final = 10
_CONFIG: Final = "/zookeeper/config"
_MEMBER: Final = re.compile(
    r"server\.(\d{1,10})=([^:=;\[\]]{1,255}|\[[0-9A-Fa-f:]{2,45}\]):\d+:\d+(?::(participant|observer))?(?:;.*)?"
)
_REPORT: Final = {
    "mode": re.compile(r"^Mode: (leader|follower|observer|standalone)$", re.MULTILINE),
    "latency": re.compile(r"^Latency min/avg/max: [\d.]+/([\d.]{1,20})/[\d.]+$", re.MULTILINE),
    "outstanding": re.compile(r"^Outstanding: (\d{1,10})$", re.MULTILINE),
}
_VERSION: Final = re.compile(r"^Zookeeper version: ([\w.-]{1,40})", re.MULTILINE)
_WRITES: Final = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN
_LENGTH: Final = struct.Struct("!i")
_REQUEST: Final = struct.Struct("!ii")

_T = TypeVar("_T")


class EnsembleProbe:
    """Reads the facts of one cluster's ensemble. It opens a session with each server for a moment, and writes nothing."""

    def __init__(self, settings: ZooKeeperSettings, wall: Callable[[], int]) -> None:
        """`wall`: microseconds."""
        self._settings = settings
        self._security = Security(settings.tls, settings.sasl, settings.authorization)
        self._wall = wall
        self._stopped = False

    def stop(self) -> None:
        """End soon. From any thread, repeatedly."""
        self._stopped = True

    def read(self) -> ZooKeeperFacts:
        """The facts of this moment. Never raises: what cannot be read is Unknown."""
        flinks = self._settings.flink_session_timeout
        requested = _DEFAULT_TIMEOUT if flinks is None else flinks
        addresses = self._settings.quorum.partition("/")[0].split(",")
        servers = tuple(self._server(address, requested) for address in addresses)
        session = _ReadingSession(self._settings.quorum, _SECONDS, self._security)
        session.open()
        session.deadline = time.monotonic() + _SECONDS
        try:
            connected = session.await_connected()
            return self._facts(session if connected else Unknown(self._not_connected(session)), servers, requested)
        finally:
            session.end(GOODBYE_SECONDS)

    def _facts(
        self, session: "_ReadingSession | Unknown", servers: tuple[Server, ...], requested: float
    ) -> ZooKeeperFacts:
        def known(ask: "Callable[[_ReadingSession], _T | Unknown]") -> _T | Unknown:
            if isinstance(session, Unknown):
                return session
            return Unknown("the sidecar ends") if self._stopped else _asked(ask, session)

        namespace = self._settings.namespace
        return ZooKeeperFacts(
            namespace=namespace,
            read_at=self._wall(),
            requested_timeout=requested,
            is_flinks_timeout=self._settings.flink_session_timeout is not None,
            servers=servers,
            members=known(_members),
            contenders=known(lambda reading: _contenders(reading, namespace)),
            writable_by_all=known(lambda reading: dict(_acls(reading, namespace))),
            left_clusters=known(lambda reading: _left_clusters(reading, namespace)),
            left_jobs=known(lambda reading: _left_jobs(reading, namespace)),
            zxid=known(lambda reading: reading.zxid),
        )

    def _not_connected(self, session: "_ReadingSession") -> str:
        return clean(session.problem) or f"ZooKeeper {self._settings.quorum} has not answered in {_SECONDS:g} s"

    # -- single servers ------------------------------------------------------------------------------------------------

    def _server(self, address: str, requested: float) -> Server:
        if self._stopped:
            return Server(address, Unknown("the sidecar ends"), Unknown("the sidecar ends"))
        return Server(address, self._granted(address, requested), self._report(address))

    def _granted(self, address: str, requested: float) -> float | Unknown:
        """The session timeout that a server grants, in seconds. The session is closed again."""
        asked = Connect(0, 0, round(requested * 1000), 0, b"\0" * 16, False).serialize()
        try:
            with self._connected(address) as connection:
                connection.sendall(_LENGTH.pack(len(asked)) + asked)
                answer = _exactly(connection, _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0])
                granted, _ = Connect.deserialize(answer, 0)
                connection.sendall(_LENGTH.pack(_REQUEST.size) + _REQUEST.pack(1, Close.type))
                with suppress(OSError):  # so that the server reads the request before the connection ends
                    connection.recv(_LENGTH.size)
        except (OSError, struct.error) as error:
            return Unknown(_reason(error))
        return granted.time_out / 1000 if granted.time_out > 0 else Unknown("it opens no session now")

    def _report(self, address: str) -> ServerReport | Unknown:
        try:
            with self._connected(address) as connection:
                connection.sendall(b"srvr")
                text = b"".join(_rest(connection)).decode(errors="replace")
        except OSError as error:
            return Unknown(_reason(error))
        values = {name: match[1] for name, pattern in _REPORT.items() if (match := pattern.search(text))}
        if values.keys() != _REPORT.keys():
            said = clean(" ".join(text.split()), 100) or "nothing"
            return Unknown(f"{address} does not answer srvr (4lw.commands.whitelist): {said}")
        version = _VERSION.search(text)
        return ServerReport(
            Mode(values["mode"]), float(values["latency"]), int(values["outstanding"]), version[1] if version else ""
        )

    def _connected(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        connection = self._security.connect((host.strip("[]"), int(port)), host.strip("[]"), _SERVER_SECONDS)
        connection.settimeout(_SERVER_SECONDS)
        return connection


class _ReadingSession(BlockingSession):
    """A session that reads what the sidecar does not watch."""

    def children(self, path: str) -> list[str]:
        """Names."""
        found: list[str] = self._client.get_children_async(path).get(timeout=self.left())
        return found

    def stat(self, path: str) -> Any:
        """The Stat; None: it does not exist."""
        return self._client.exists_async(path).get(timeout=self.left())

    def acl(self, path: str) -> list[Any]:
        """Entries."""
        entries, _ = self._client.get_acls_async(path).get(timeout=self.left())
        return list(entries)


def _asked(ask: Callable[[_ReadingSession], _T | Unknown], session: _ReadingSession) -> _T | Unknown:
    try:
        return ask(session)
    except NoAuthError:
        return Unknown("no permission to read it in ZooKeeper")
    except NoNodeError:
        return Unknown("it is not in ZooKeeper")
    except KazooTimeoutError:
        return Unknown(f"ZooKeeper has not answered in {_SECONDS:g} s")
    except KazooException as error:
        return Unknown(clean(session.problem or type(error).__name__))


def _members(session: _ReadingSession) -> tuple[Member, ...] | Unknown:
    """The ensemble by its own configuration. A server of version 3.4 has none; a single server an empty one."""
    try:
        content, _ = session.read(_CONFIG)
    except NoNodeError:
        return Unknown(f"{_CONFIG} does not exist: ZooKeeper is older than 3.5, or the connection string has a chroot")
    except NoAuthError:
        return Unknown(f"no permission to read {_CONFIG}")
    lines = content[:_MOST_BYTES].decode(errors="replace").splitlines()
    found = (_MEMBER.fullmatch(line.strip()) for line in lines)
    return tuple(Member(int(match[1]), match[2], match[3] != "observer") for match in found if match)


def _contenders(session: _ReadingSession, namespace: str) -> int:
    return len(session.children(namespace + LATCH))


def _acls(session: _ReadingSession, namespace: str) -> Iterator[tuple[str, bool]]:
    """Of the cluster's own node, those above its leaders, and its job stores."""
    paths = [namespace, *(namespace + path for path in (LEADER, LATCH, *JOB_STORES, "/checkpoints"))]
    for path in islice(paths, _MOST_ACLS):
        with suppress(NoNodeError):
            yield path, any(_is_open(entry) for entry in session.acl(path))


def _is_open(entry: Any) -> bool:
    return bool(entry.id.scheme == "world" and entry.perms & _WRITES)


def _left_clusters(session: _ReadingSession, namespace: str) -> tuple[Leftover, ...] | Unknown:
    """The clusters beside this one in whose latch nobody is, and which have no leader."""
    root, _, own = namespace.rpartition("/")
    names = session.children(root or "/")
    if len(names) > _MOST_SIBLINGS:
        return Unknown(f"{len(names)} nodes are in {root or '/'}, more than {_MOST_SIBLINGS}")
    left = []
    for name in sorted({*names} - {own}):
        path = f"{root}/{name}"
        with suppress(NoNodeError, NoAuthError):
            if {*session.children(path)} & OWN_NAMES and not _is_led(session, path):
                left.append(Leftover(path, name, _changed_at(session, path)))
    return tuple(left)


def _is_led(session: _ReadingSession, namespace: str) -> bool:
    """Whether a JobManager contends there; or one of a layout that is not looked into may."""
    try:
        names = session.children(namespace + LEADER)
    except NoNodeError:
        return "leaderlatch" in session.children(namespace)
    return any(session.children(f"{namespace}{LEADER}/{name}") for name in names)


def _changed_at(session: _ReadingSession, namespace: str) -> int:
    """When its leaders last came or went (microseconds)."""
    stats = [session.stat(path) for path in (namespace, namespace + LEADER, namespace + LATCH)]
    return int(max(stat.mtime for stat in stats if stat)) * 1000


def _left_jobs(session: _ReadingSession, namespace: str) -> tuple[Leftover, ...] | Unknown:
    """Jobs with checkpoints that are in no job store."""
    stored: set[str] = set()
    for store in JOB_STORES:
        with suppress(NoNodeError):
            stored |= job_ids(session.children(namespace + store))
    folder = f"{namespace}/checkpoints"
    try:
        jobs = job_ids(session.children(folder)) - stored
    except NoNodeError:
        return ()
    if len(jobs) > _MOST_SIBLINGS:
        return Unknown(f"{len(jobs)} jobs have checkpoints and are in no job store, more than {_MOST_SIBLINGS}")
    stats = ((job, session.stat(f"{folder}/{job}")) for job in sorted(jobs))
    return tuple(Leftover(f"{folder}/{job}", job, stat.mtime * 1000) for job, stat in stats if stat)


def _exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes. Raises OSError."""
    if not 0 < count <= _MOST_BYTES:
        raise OSError("it does not speak ZooKeeper's protocol")
    content = b""
    while len(content) < count:
        part = connection.recv(count - len(content))
        if not part:
            raise OSError("it closed the connection")
        content += part
    return content


def _rest(connection: socket.socket) -> Iterator[bytes]:
    """What it sends until it closes the connection, up to a limit of bytes and time. Raises OSError."""
    deadline, count = time.monotonic() + _SERVER_SECONDS, 0
    while count < _MOST_BYTES and time.monotonic() < deadline and (part := connection.recv(4096)):
        count += len(part)
        yield part


def _reason(error: Exception) -> str:
    return clean(getattr(error, "strerror", None) or str(error) or type(error).__name__)
