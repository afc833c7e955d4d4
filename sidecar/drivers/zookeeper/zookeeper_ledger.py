"""The ledger in ZooKeeper: one znode below a root of its own, never below Flink's. Only this module writes to ZooKeeper."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from kazoo.exceptions import BadVersionError, InvalidACLError, KazooException, NoAuthError, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

from sidecar.drivers.zookeeper.blocking_session import GOODBYE_SECONDS, BlockingSession
from sidecar.drivers.zookeeper.security import PLAIN, Security
from sidecar.ports import LONGEST_DOCUMENT, LedgerError, LedgerRefusedError, StoredDocument

ROOT: Final = "/flink-ha-sidecar"

_PARENT_ACL = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True)]
"""The ACL of the parents: clusters with other credentials create their ledgers below them, and must not delete ours."""


class ZooKeeperLedger:
    """A `sidecar.ports.LedgerStore`: the znode `/flink-ha-sidecar<namespace>/<name>` below the chroot of the quorum.

    With credentials (SASL or authorization) only these may read and change it; otherwise every client of the ensemble.
    """

    def __init__(
        self, quorum: str, namespace: str, *, name: str = "ledger", security: Security = PLAIN, seconds: float = 5.0
    ) -> None:
        """`name`: of the document; `quorum` as in `h1:2181,h2:2181[/chroot]`, `namespace` as in `/flink/default`; `seconds`: for each
        call.
        """
        self._quorum = quorum
        self._seconds = seconds
        self._security = security
        self._name = name
        self._path = f"{ROOT}{namespace}/{name}"
        self._is_flinks = f"{namespace}/".startswith(f"{ROOT}/")
        self._session: _Session | None = None

    def read(self) -> StoredDocument:
        with self._session_to("read") as session:
            try:
                content, stat = session.read(self._path)
            except NoNodeError:
                return StoredDocument()
        if len(content) > LONGEST_DOCUMENT:
            raise LedgerError(f"{self._doing('read')}: {len(content)} bytes are too many for a ledger: delete it")
        return StoredDocument(content, stat.version)

    def write(self, content: bytes, over: StoredDocument) -> StoredDocument | None:
        if len(content) > LONGEST_DOCUMENT:
            raise LedgerError(f"{self._doing('write')}: {len(content)} bytes, of at most {LONGEST_DOCUMENT}")
        with self._session_to("write") as session:
            try:
                if isinstance(over.version, int):
                    return StoredDocument(content, session.change(self._path, content, over.version).version)
                self._create(session, self._path, content)
            except (BadVersionError, NodeExistsError, NoNodeError):
                return None
        return StoredDocument(content, 0)

    def rest(self) -> None:
        self._disconnect(GOODBYE_SECONDS)

    stop = rest

    def _create(self, session: "_Session", path: str, content: bytes = b"") -> None:
        """Create `path`, then its missing parents: creating an existing parent may be refused instead of reported as existing."""
        if path == "":
            raise LedgerError(f"{self._doing('write')}: the chroot of {self._quorum} does not exist: create it")
        acl = OPEN_ACL_UNSAFE
        if self._security.sasl or self._security.authorization:
            acl = CREATOR_ALL_ACL if path == self._path else _PARENT_ACL
        try:
            session.create(path, content, acl)
        except NoAuthError as error:
            advice = f"create {ROOT} with the permission to create below it"
            raise LedgerRefusedError(f"{self._doing('write')}: no permission to create {path}: {advice}") from error
        except NoNodeError:
            with suppress(NodeExistsError):  # another sidecar created it meanwhile
                self._create(session, path.rpartition("/")[0])
            session.create(path, content, acl)

    @contextmanager
    def _session_to(self, verb: str) -> Iterator["_Session"]:
        """A connected session for one call. Raises LedgerError, also for errors of the call."""
        doing = self._doing(verb)
        session = self._connected(doing)
        try:
            yield session
        except NoAuthError as error:
            raise LedgerRefusedError(
                f"{doing}: no permission: it belongs to other credentials: use those (zookeeper.sasl, zookeeper.authorization), "
                "or delete it"
            ) from error
        except InvalidACLError as error:
            reason = "the server does not know the identity in zookeeper.sasl or zookeeper.authorization"
            raise LedgerRefusedError(f"{doing}: {reason}") from error
        except KazooTimeoutError as error:
            self._disconnect()
            raise LedgerError(f"{doing}: no answer in {self._seconds:g} s") from error
        except KazooException as error:
            self._disconnect()
            reason = session.problem or f"the connection was lost ({type(error).__name__})"
            raise LedgerError(f"{doing}: {reason}") from error

    def _connected(self, doing: str) -> "_Session":
        deadline = time.monotonic() + self._seconds
        if self._is_flinks:
            raise LedgerRefusedError(f"{doing}: Flink's root must not be {ROOT} or below it")
        if self._session and not self._session.still_serves():
            self._disconnect()
        if self._session is None:
            self._session = _Session(self._quorum, self._seconds, self._security)
            self._session.open()
        session = self._session
        session.deadline = deadline
        if not session.await_connected():
            self._disconnect()
            raise LedgerError(f"{doing}: {session.problem or f'no answer in {self._seconds:g} s'}")
        return session

    def _disconnect(self, patience: float = 0) -> None:
        session, self._session = self._session, None
        if session:
            session.end(patience)

    def _doing(self, verb: str) -> str:
        return f"cannot {verb} the {self._name} {self._path} in ZooKeeper {self._quorum}"


class _Session(BlockingSession):
    """A session that also writes."""

    def change(self, path: str, content: bytes, version: int) -> Any:
        """The new Stat."""
        return self._client.set_async(path, content, version).get(timeout=self.seconds_left())

    def create(self, path: str, content: bytes, acl: Sequence[Any]) -> None:
        # kazoo's plain `create` needs threads that our handler does not start.
        transaction = self._client.transaction()
        transaction.create(path, content, list(acl))
        for result in transaction.commit_async().get(timeout=self.seconds_left()):
            if isinstance(result, Exception):
                raise result
