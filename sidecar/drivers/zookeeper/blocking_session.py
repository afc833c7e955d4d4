"""A session whose calls wait for their answers, up to a deadline: for a few reads and writes now and then."""

import threading
import time
from typing import Any, Final

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from sidecar.core.observations import ConnectionState
from sidecar.drivers.zookeeper.security import Security
from sidecar.drivers.zookeeper.zookeeper_session import Question, Session

GOODBYE_SECONDS: Final = 1.0


class BlockingSession(Session):
    """Each call waits for its answer until `deadline` (monotonic). Raises kazoo's exceptions."""

    def __init__(self, hosts: str, seconds: float, security: Security) -> None:
        """`seconds`: for a call."""
        self.deadline = 0.0
        self.connected = False
        self.problem = ""
        """Why the last attempt to connect failed."""
        self._settled = threading.Event()
        self._patience = seconds / 3  # for each server: if one is frozen, there is time for another
        super().__init__(
            hosts,
            2 * seconds,  # there are no ephemeral nodes
            self._patience,
            security,
            state_changed=self._note_state,
            happened=lambda _event, _path: None,
            failed=self._note_reason,
            ended=self._settled.set,
        )

    def await_connected(self) -> bool:
        """True if the session is connected by the deadline."""
        self._settled.wait(self.seconds_left())
        return self.connected

    def still_serves(self) -> bool:
        """True if the server answers. Asked before each call: a write whose answer is lost may have been done."""
        try:
            self._client.exists_async("/").get(timeout=self._patience)
        except (KazooException, KazooTimeoutError):
            return False
        return self.connected

    def read(self, path: str) -> tuple[bytes, Any]:
        """Content and Stat, as the ensemble's leader has them."""
        self.ask(Question.SYNC, path, lambda _: None)  # requests are answered in order
        content, stat = self._client.get_async(path).get(timeout=self.seconds_left())
        return content or b"", stat

    def end(self, patience: float) -> None:
        """Close the session, waiting for about `patience` seconds; 0: without a goodbye to the server."""
        goodbye = {"goodbye": patience > 0}
        closing = threading.Thread(target=self.close, kwargs=goodbye, name="zookeeper-goodbye", daemon=True)
        try:
            closing.start()
        except RuntimeError:  # no more threads: without a goodbye
            self.close(goodbye=False)
            return
        if patience > 0:
            closing.join(patience)
            if closing.is_alive():
                self.drop()
                closing.join(patience)

    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return max(self.deadline - time.monotonic(), 0.001)

    def _note_state(self, state: ConnectionState) -> None:
        self.connected = state is ConnectionState.CONNECTED
        if self.connected:
            self.problem = ""
            self._settled.set()

    def _note_reason(self, reason: str) -> None:
        self.problem = reason
