"""Flink's JobManagers, as far as a store shows them: they write what Flink 2.3 writes, one process for each term.

Fakes at the border, since hundreds of failovers of a real Flink take hours. tests/e2e proves with real ones that this is what they write.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Final, TypeVar
from urllib.error import HTTPError
from uuid import uuid4

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.campaign.diary import Diary

T = TypeVar("T")

JOB: Final = "ab" * 16
CLUSTER: Final = "campaign"
COMPONENTS: Final = ("resource_manager", "dispatcher", "rest_server", "job")
WRITE_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.1


class NotWrittenError(Exception):
    """The store did not take a write for minutes."""


class FakeFlink(ABC):
    """The leaders of one cluster. Every term is a process of its own, on a host of its own: `jm-00001` is the first."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._term = 0
        self._session = ""
        self.leads = False

    @property
    def host(self) -> str:
        """The host of the present or last leader."""
        return f"jm-{self._term:05}"

    def fail_over(self, *, vacancy: float = 0.2, crash: bool = False) -> None:
        """The leader goes, and `vacancy` seconds later the next one has published itself. `crash`: it takes nothing back itself."""
        self.withdraw(crash=crash)
        time.sleep(vacancy)
        self.publish()

    def publish(self) -> None:
        """The next leader publishes itself for all components."""
        self._term += 1
        self._session = str(uuid4())
        with self._diary.noting("published", host=self.host, session=self._session, components=COMPONENTS):
            self._publish()
        self.leads = True

    def withdraw(self, *, crash: bool = False) -> None:
        """The leader goes. It need not be there any more."""
        if not self.leads:
            return
        with self._diary.noting("withdrawn", session=self._session, crash=crash):
            self._withdraw(crash=crash)
        self.leads = False

    def forget(self) -> None:
        """The store is about to be set back: whoever leads is gone, and whoever led before may stand there for a moment. That is news."""
        now = time.time()
        self._diary.note("withdrawn", session=self._session, since=now, crash=True)
        self._diary.note("set_back")
        self.leads = False

    def address(self, component: str) -> str:
        """What the present leader publishes for a component."""
        if component == "rest_server":
            return f"http://{self.host}:8081"
        return f"pekko.tcp://flink@{self.host}:6123/user/rpc/{component}_{self._term}"

    @abstractmethod
    def start(self) -> None:
        """Prepare the store, and let the first leader publish itself."""

    @abstractmethod
    def stop(self) -> None:
        """Leave the store alone from now on."""

    @abstractmethod
    def confirm(self) -> None:
        """After a fault of the store: write into the diary what it has lost or brought back, and let a leader lead."""

    @abstractmethod
    def spoil(self, content: bytes) -> None:
        """Write garbage where the dispatcher's leader is."""

    @abstractmethod
    def encoded(self, address: str) -> bytes:
        """What a leader with this address publishes."""

    @abstractmethod
    def mend(self) -> None:
        """Write what was there before the garbage."""

    @abstractmethod
    def begin_jobs(self, job_ids: Sequence[str]) -> None:
        """Register these jobs, and publish the present leader for them, at once."""

    @abstractmethod
    def end_jobs(self, job_ids: Sequence[str]) -> None:
        """Remove the leaders of these jobs, their places and their plans, at once."""

    @abstractmethod
    def _publish(self) -> None: ...

    @abstractmethod
    def _withdraw(self, *, crash: bool) -> None: ...


def until_written(write: Callable[[], T]) -> T:
    """Try until the store takes it, also through an outage."""
    deadline = time.monotonic() + WRITE_SECONDS
    while True:
        try:
            return write()
        except (KazooException, KazooTimeoutError, OSError, HTTPException) as error:
            if isinstance(error, HTTPError) and error.code < 500 and error.code not in {409, 429}:
                raise
            if time.monotonic() > deadline:
                raise NotWrittenError(f"not written for {WRITE_SECONDS:.0f} s: {error!r}") from error
            time.sleep(_PAUSE_SECONDS)
