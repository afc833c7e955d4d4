"""Reads how an ensemble of ZooKeeper and a Flink cluster in it are set up: the facts of `ha check`."""

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Close, Connect
from kazoo.security import Permissions

from sidecar.core.bounds import STORE_LIST
from sidecar.core.flink.leadership import Unreadable, decode_connection_info
from sidecar.core.flink.znode_paths import JOB_STORES, JOBS, LATCH, LEADER, is_cluster, job_ids
from sidecar.core.ha.finding import UnknownFact
from sidecar.core.ha.zookeeper_checks import EnsembleMember, Leftover, Mode, Server, ServerReport, ZooKeeperFacts
from sidecar.core.sanitize import clean
from sidecar.drivers.zookeeper.blocking_session import GOODBYE_SECONDS, BlockingSession
from sidecar.drivers.zookeeper.persistent import TooLongError
from sidecar.drivers.zookeeper.security import Security
from sidecar.settings import ZooKeeperSettings

_ANSWER_SECONDS: Final = 4.0
"""The time for a connection to a server, and for its answer."""
_MOST_BYTES: Final = 16 << 10
"""The most bytes of a report."""
_MOST_GRANTED_BYTES: Final = 64
"""The most bytes of the answer to a request for a session, which has 37."""
_PASSWORD_BYTES: Final = 16
_LONGEST_SESSION: Final = (1 << 31) - 1
"""Milliseconds: ZooKeeper's protocol has no longer one."""
_REPORT: Final = {
    "mode": re.compile(r"^Mode: (leader|follower|observer|standalone)$", re.MULTILINE),
    "latency": re.compile(r"^Latency min/avg/max: [0-9.]+/([0-9]{1,10}(?:\.[0-9]{1,10})?)/[0-9.]+$", re.MULTILINE),
    "outstanding": re.compile(r"^Outstanding: ([0-9]{1,10})$", re.MULTILINE),
}
_VERSION: Final = re.compile(r"^Zookeeper version: ([\w.-]{1,40})", re.MULTILINE)
_LENGTH: Final = struct.Struct("!i")
_REQUEST: Final = struct.Struct("!ii")


def read_servers(
    addresses: list[str], requested: float, security: Security, seconds: float, stopped: Callable[[], bool]
) -> Iterator[Server]:
    """The servers of a connection string, none of which is asked after `seconds`. `requested`: the session timeout, in seconds."""
    deadline = time.monotonic() + seconds
    for address in addresses:
        if stopped() or time.monotonic() > deadline:
            reason = UnknownFact("the sidecar ends" if stopped() else f"it was not asked: {seconds:g} s are over")
            yield Server(address, reason, reason, asked=False)
        else:
            yield Server(address, _granted(address, requested, security), _report(address, security))


def _granted(address: str, requested: float, security: Security) -> float | UnknownFact:
    """The session timeout that a server grants, in seconds. The session is closed again."""
    asked = Connect(0, 0, min(round(requested * 1000), _LONGEST_SESSION), 0, b"\0" * 16, False).serialize()
    try:
        with _connected(address, security) as connection:
            connection.sendall(_LENGTH.pack(len(asked)) + asked)
            answer = _exactly(connection, _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0])
            granted, _ = Connect.deserialize(answer, 0)
            if len(granted.passwd or b"") != _PASSWORD_BYTES:
                return UnknownFact(_OTHER_PROTOCOL)
            connection.sendall(_LENGTH.pack(_REQUEST.size) + _REQUEST.pack(1, Close.type))
            with suppress(OSError):  # so that the server reads the request before the connection ends
                connection.recv(_LENGTH.size)
    except struct.error:
        return UnknownFact(_OTHER_PROTOCOL)
    except OSError as error:
        return UnknownFact(_reason(error))
    return granted.time_out / 1000 if granted.time_out > 0 else UnknownFact("it refuses sessions now")


_OTHER_PROTOCOL: Final = "it does not speak ZooKeeper's protocol"


def _report(address: str, security: Security) -> ServerReport | UnknownFact:
    try:
        with _connected(address, security) as connection:
            connection.sendall(b"srvr")
            text = b"".join(_rest(connection)).decode(errors="replace")
    except OSError as error:
        return UnknownFact(f"{address}: {_reason(error)}")
    values = {name: match[1] for name, pattern in _REPORT.items() if (match := pattern.search(text))}
    if values.keys() != _REPORT.keys():
        answer = clean(" ".join(text.split()), 100) or "no answer"
        return UnknownFact(f"{address} does not answer srvr: {answer}")
    version = _VERSION.search(text)
    return ServerReport(
        Mode(values["mode"]), float(values["latency"]), int(values["outstanding"]), version[1] if version else ""
    )


def _connected(address: str, security: Security) -> socket.socket:
    """Raises OSError."""
    host, port = collect_hosts(address)[0][0]
    connection = security.connect((host, port), host, _ANSWER_SECONDS)
    connection.settimeout(_ANSWER_SECONDS)
    return connection


def _exactly(connection: socket.socket, count: int) -> bytes:
    """The next `count` bytes. Raises OSError."""
    if not 0 < count <= _MOST_GRANTED_BYTES:
        raise OSError(_OTHER_PROTOCOL)
    content, deadline = b"", time.monotonic() + _ANSWER_SECONDS
    while len(content) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"it has not answered in {_ANSWER_SECONDS:g} s")
        part = connection.recv(count - len(content))
        if not part:
            raise OSError("it closed the connection")
        content += part
    return content


def _rest(connection: socket.socket) -> Iterator[bytes]:
    """The bytes that the server sends until it closes the connection, up to a limit of bytes and time. Raises OSError."""
    deadline, count = time.monotonic() + _ANSWER_SECONDS, 0
    while count < _MOST_BYTES and time.monotonic() < deadline and (part := connection.recv(4096)):
        count += len(part)
        yield part


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"it has not answered in {_ANSWER_SECONDS:g} s"
    return clean(error.strerror or str(error) or type(error).__name__)


_SERVERS_SECONDS: Final = 20.0
"""The time for asking the servers one by one. After that no other server is asked."""
_SECONDS: Final = 20.0
"""The time for everything that is read through one session. A fact that is not read by then is not known."""
_DEFAULT_TIMEOUT: Final = 60.0
"""Flink's, in seconds."""
_MOST_SIBLINGS: Final = 200
"""Clusters below the root, and jobs of the cluster, that are looked at. With more it is not known which are left behind."""
_MOST_DATED: Final = 50
"""Jobs of another cluster whose last checkpoint says that it was alive."""
_CONFIG: Final = "/zookeeper/config"
_OLD_CHECKPOINTS: Final = "/checkpoints"
"""Up to Flink 1.13. Since then a job's are below `JOBS`."""
_MEMBER: Final = re.compile(
    r"server\.([0-9]{1,10})=([^:=;\[\]]{1,255}|\[[0-9A-Fa-f:]{2,45}\]):[0-9]+:[0-9]+"
    r"(?:\|[^;]*?)?(?::(participant|observer))?(?:;.*)?"
)
"""A server; after `|` its other addresses."""
_WRITES: Final = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN

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
        servers = tuple(read_servers(addresses, requested, self._security, _SERVERS_SECONDS, lambda: self._stopped))
        session = _ReadingSession(self._settings.quorum, _SECONDS, self._security)
        session.open()
        session.deadline = time.monotonic() + _SECONDS
        try:
            connected = session.await_connected()
            return self._facts(session if connected else UnknownFact(self._not_connected(session)), servers, requested)
        finally:
            session.end(GOODBYE_SECONDS)

    def _facts(
        self, session: "_ReadingSession | UnknownFact", servers: tuple[Server, ...], requested: float
    ) -> ZooKeeperFacts:
        def ask(question: "Callable[[_ReadingSession], _T | UnknownFact]") -> _T | UnknownFact:
            if isinstance(session, UnknownFact):
                return session
            return UnknownFact("the sidecar ends") if self._stopped else _answer(question, session)

        namespace = self._settings.namespace
        return ZooKeeperFacts(
            namespace=namespace,
            read_at=self._wall(),
            requested_timeout=requested,
            is_flinks_timeout=self._settings.flink_session_timeout is not None,
            servers=servers,
            members=ask(_members),
            contenders=ask(lambda reading: _contenders(reading, namespace)),
            writable_by_all=ask(lambda reading: dict(_acls(reading, namespace))),
            left_clusters=ask(lambda reading: _left_clusters(reading, namespace)),
            left_jobs=ask(lambda reading: _left_jobs(reading, namespace)),
            zxid=ask(lambda reading: reading.zxid),
            rest_address=ask(lambda reading: _rest_address(reading, namespace)),
        )

    def _not_connected(self, session: "_ReadingSession") -> str:
        return clean(session.problem or f"ZooKeeper {self._settings.quorum} has not answered in {_SECONDS:g} s")


class _ReadingSession(BlockingSession):
    """A session that reads what the sidecar does not watch."""

    def children(self, path: str) -> list[str]:
        """Names. Their number is asked for first: anybody may create as many as they like. Raises TooLongError."""
        stat = self.stat(path)
        if stat and stat.numChildren > STORE_LIST.most_items:
            raise TooLongError(f"{clean(path)} has {stat.numChildren} children, more than {STORE_LIST.most_items}")
        names: list[str] = self._client.get_children_async(path).get(timeout=self.seconds_left())
        return names

    def stat(self, path: str) -> Any:
        """The Stat; None: it does not exist."""
        return self._client.exists_async(path).get(timeout=self.seconds_left())

    def acl(self, path: str) -> list[Any]:
        """Entries."""
        entries, _ = self._client.get_acls_async(path).get(timeout=self.seconds_left())
        return list(entries)


def _answer(question: Callable[[_ReadingSession], _T | UnknownFact], session: _ReadingSession) -> _T | UnknownFact:
    try:
        return question(session)
    except NoAuthError:
        return UnknownFact("no permission to read it in ZooKeeper")
    except NoNodeError:
        return UnknownFact("the znodes of this cluster do not exist")
    except TooLongError as error:
        return UnknownFact(str(error))
    except KazooTimeoutError:
        return UnknownFact(f"ZooKeeper has not answered in {_SECONDS:g} s")
    except KazooException as error:
        return UnknownFact(clean(session.problem or type(error).__name__))


def _members(session: _ReadingSession) -> tuple[EnsembleMember, ...] | UnknownFact:
    """The ensemble by its own configuration. A server of version 3.4 has none; a single server an empty one."""
    try:
        content, _ = session.read(_CONFIG)
    except NoNodeError:
        return UnknownFact(
            f"{_CONFIG} does not exist: ZooKeeper is older than 3.5, or the connection string has a chroot"
        )
    except NoAuthError:
        return UnknownFact(f"no permission to read {_CONFIG}")
    members = []
    for line in content[:_MOST_BYTES].decode(errors="replace").splitlines():
        if line.startswith("group."):
            return UnknownFact(f"{_CONFIG} has groups of servers (a hierarchical quorum), which are not judged")
        if match := _MEMBER.fullmatch(line.strip()):
            members.append(EnsembleMember(int(match[1]), match[2], match[3] != "observer"))
        elif line.startswith("server."):
            return UnknownFact(f"{_CONFIG} has a line that is not known: {clean(line)}")
    return tuple(members)


def _contenders(session: _ReadingSession, namespace: str) -> int | UnknownFact:
    try:
        return len(session.children(namespace + LATCH))
    except NoNodeError:
        latch = clean(namespace + LATCH)
        return UnknownFact(f"{latch} does not exist: the cluster has not run yet, or it is Flink 1.14 or older")


def _rest_address(session: _ReadingSession, namespace: str) -> str | UnknownFact:
    """The address of the leading REST server, where Flink 1.14 and newer publish it. Empty: there is no leader."""
    try:
        content, _ = session.read(f"{namespace}{LEADER}/rest_server/connection_info")
    except NoNodeError:
        return ""
    leader = decode_connection_info(content)
    return UnknownFact(leader.reason) if isinstance(leader, Unreadable) else leader.address


def _acls(session: _ReadingSession, namespace: str) -> Iterator[tuple[str, bool]]:
    """Whether anyone may change them, for the cluster's own node, those above its leaders and checkpoints, and its job stores."""
    for path in (namespace, *(namespace + path for path in (LEADER, LATCH, *JOB_STORES, JOBS, _OLD_CHECKPOINTS))):
        with suppress(NoNodeError):
            yield path, any(_is_open(entry) for entry in session.acl(path))


def _is_open(entry: Any) -> bool:
    return bool(entry.id.scheme == "world" and entry.perms & _WRITES)


def _left_clusters(session: _ReadingSession, namespace: str) -> tuple[Leftover, ...] | UnknownFact:
    """The clusters beside this one that have no leader, and no contender; and what may be one, and cannot be read."""
    root, _, own = namespace.rpartition("/")
    names = session.children(root or "/")
    if len(names) > _MOST_SIBLINGS:
        return UnknownFact(f"{clean(root) or '/'} has {len(names)} children, more than {_MOST_SIBLINGS}")
    leftovers = []
    for name in sorted({*names} - {own}):
        path = f"{root}/{name}"
        try:
            if (leaders := _leaders(session, path)) is not None and not _is_led(session, path, leaders):
                leftovers.append(Leftover(path, name, _changed_at(session, path, leaders)))
        except NoNodeError:
            continue  # it was removed meanwhile
        except NoAuthError:
            leftovers.append(Leftover(path, name, UnknownFact("no permission to read it")))
        except TooLongError as error:
            leftovers.append(Leftover(path, name, UnknownFact(str(error))))
    return tuple(leftovers)


def _leaders(session: _ReadingSession, namespace: str) -> list[str] | None:
    """The children of its `/leader`. None: it is not a cluster of Flink."""
    names = session.children(namespace)
    leaders = session.children(namespace + LEADER) if LEADER[1:] in names else []
    return leaders if is_cluster(names, leaders) else None


def _is_led(session: _ReadingSession, namespace: str, leaders: list[str]) -> bool:
    """True if a JobManager leads or contends there."""
    if any(name.endswith("_lock") for name in leaders):
        return True  # Flink 1.13 or older: the leader itself
    for name in leaders:
        path = f"{namespace}{LEADER}/{name}"
        children = session.children(path)
        if name == "latch" and children:
            return True
        if not {"connection_info", "job_manager_lock"}.isdisjoint(children):
            return True
        if "latch" in children and session.children(f"{path}/latch"):
            return True  # Flink 1.14
    return False


def _changed_at(session: _ReadingSession, namespace: str, leaders: list[str]) -> int:
    """The time at which the data of the cluster was last written (microseconds): its leaders' znodes, its jobs and their checkpoints.

    The end of a session, which takes the leaders away, leaves no time.
    """
    paths = [namespace, namespace + LEADER, *(f"{namespace}{LEADER}/{name}" for name in leaders)]
    for store in JOB_STORES:
        with suppress(NoNodeError):
            for job in sorted(job_ids(session.children(namespace + store)))[:_MOST_DATED]:
                paths += [f"{namespace}{store}/{job}", *_counters(namespace, job)]
    stats = [session.stat(path) for path in paths]
    return int(max((stat.mtime for stat in stats if stat), default=0)) * 1000


def _counters(namespace: str, job: str) -> tuple[str, str]:
    """The znodes that Flink writes at each checkpoint: since 1.14, and before."""
    return f"{namespace}{JOBS}/{job}/checkpoint_id_counter", f"{namespace}/checkpoint-counter/{job}"


def _left_jobs(session: _ReadingSession, namespace: str) -> tuple[Leftover, ...] | UnknownFact:
    """Jobs with checkpoints that are in no job store."""
    stored: set[str] = set()
    for store in JOB_STORES:
        with suppress(NoNodeError):
            stored |= job_ids(session.children(namespace + store))
    orphans = []
    for folder in (namespace + JOBS, namespace + _OLD_CHECKPOINTS):
        with suppress(NoNodeError):
            orphans += [(f"{folder}/{job}", job) for job in sorted(job_ids(session.children(folder)) - stored)]
    if len(orphans) > _MOST_SIBLINGS:
        return UnknownFact(f"{len(orphans)} jobs have checkpoints and are in no job store, more than {_MOST_SIBLINGS}")
    leftovers = []
    for path, job in orphans:
        stats = [session.stat(znode) for znode in (path, *_counters(namespace, job))]
        if stats[0]:  # else it was removed meanwhile
            leftovers.append(Leftover(path, job, int(max(stat.mtime for stat in stats if stat)) * 1000))
    return tuple(leftovers)
