"""Flink's JobManagers as ZooKeeper shows them: tests/campaign/flink.py."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID, uuid4

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError, NotEmptyError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

from tests.campaign.diary import Diary
from tests.campaign.flink import CLUSTER, COMPONENTS, JOB, FakeFlink, until_written
from tests.kit.java_serialization import connection_info

_SESSION_SECONDS: Final = 40.0
_ROOT: Final = f"/flink/{CLUSTER}"
_NAMES: Final = {name: f"job-{JOB}" if name == "job" else name for name in COMPONENTS}
_LATCH: Final = f"{_ROOT}/leader/latch"


def node(component: str) -> str:
    """Where a component's leader is published."""
    return f"{_ROOT}/leader/{_NAMES[component]}/connection_info"


class ZooKeeperFlink(FakeFlink):
    """Two JobManagers contend at any time, each with a session of its own; a leader's nodes are ephemeral."""

    def __init__(self, diary: Diary, address: str) -> None:
        super().__init__(diary)
        self._address = address
        self._leader: KazooClient | None = None
        self._standby: KazooClient | None = None

    def start(self) -> None:
        self._prepare()
        self.publish()

    def stop(self) -> None:
        for client in (self._leader, self._standby):
            if client:
                _end(client)

    def confirm(self) -> None:
        found = {name: until_written(lambda name=name: self._read(name)) for name in COMPONENTS}  # type: ignore[misc]
        expected = {name: self._content(name) if self.leads else None for name in COMPONENTS}
        if found != expected:
            self._clear()
            self.leads = False
            self._prepare()
            self.publish()

    def spoil(self, content: bytes) -> None:
        assert self._leader
        leader = self._leader
        with self._diary.noting("spoiled", session=self._session, component="dispatcher"):
            until_written(lambda: leader.set(node("dispatcher"), content))

    def encoded(self, address: str) -> bytes:
        return connection_info(address, UUID(self._session))

    def mend(self) -> None:
        self.spoil(self._content("dispatcher"))
        self._diary.note("mended", session=self._session, component="dispatcher")

    def begin_jobs(self, job_ids: Sequence[str]) -> None:
        self._together(job_ids, lambda of, path, data: of.create(path, data or b"", ephemeral=data is not None))

    def end_jobs(self, job_ids: Sequence[str]) -> None:
        self._together([*job_ids], lambda of, path, _: of.delete(path), reverse=True)

    def _together(
        self,
        job_ids: Sequence[str],
        act: Callable[[TransactionRequest, str, bytes | None], None],
        *,
        reverse: bool = False,
    ) -> None:
        """One transaction: the plans, the leaders' parents, the leaders. An earlier attempt may have arrived."""
        assert self._leader
        request = self._leader.transaction()
        content = self._content("job")
        for job_id in job_ids:
            place = f"{_ROOT}/leader/job-{job_id}"
            paths = [(f"{_ROOT}/execution-plans/{job_id}", None), (place, None), (f"{place}/connection_info", content)]
            for path, data in reversed(paths) if reverse else paths:
                act(request, path, data)
        until_written(request.commit)

    def _prepare(self) -> None:
        self._standby = self._standby or self._contend()
        standby = self._standby
        until_written(lambda: standby.ensure_path(f"{_ROOT}/execution-plans/{JOB}"))

    def _contend(self) -> KazooClient:
        client = KazooClient(self._address, timeout=_SESSION_SECONDS)
        until_written(lambda: client.start(10))
        until_written(lambda: client.ensure_path(_LATCH))
        path = f"{_LATCH}/_c_{uuid4()}-latch-"
        until_written(lambda: client.create(path, b"127.0.0.1", ephemeral=True, sequence=True))
        return client

    def _publish(self) -> None:
        self._leader = leader = self._standby or self._contend()
        self._standby = self._contend()
        for name in COMPONENTS:
            until_written(lambda name=name: self._create(leader, name))  # type: ignore[misc]

    def _create(self, leader: KazooClient, name: str) -> None:
        """An earlier attempt may have arrived."""
        with suppress(NodeExistsError):
            leader.create(node(name), self._content(name), ephemeral=True, makepath=True)

    def _withdraw(self, *, crash: bool) -> None:
        leader = self._leader
        assert leader
        if not crash:
            for name in COMPONENTS:
                until_written(lambda name=name: _delete(leader, node(name)))  # type: ignore[misc]
        until_written(lambda: leader.exists(node("dispatcher")))  # the store is there, and takes note of the end
        _end(leader)
        self._leader = None

    def _read(self, name: str) -> bytes | None:
        assert self._standby
        try:
            return bytes(self._standby.get(node(name))[0])
        except NoNodeError:
            return None
        except SessionExpiredError:  # of a store that was set back: this client may not find back to it
            _end(self._standby)
            self._standby = self._contend()
            raise

    def _clear(self) -> None:
        """Nodes of a leader that is gone, and those of before."""
        standby = self._standby
        assert standby
        for name in COMPONENTS:
            until_written(lambda name=name: _delete(standby, node(name)))  # type: ignore[misc]

    def _content(self, name: str) -> bytes:
        return self.encoded(self.address(name))


def _delete(client: KazooClient, path: str) -> None:
    with suppress(NoNodeError, NotEmptyError):
        client.delete(path)


def _end(client: KazooClient) -> None:
    """Close the session: its nodes go, all in one transaction."""
    with suppress(KazooException, KazooTimeoutError):
        client.stop()
        client.close()
