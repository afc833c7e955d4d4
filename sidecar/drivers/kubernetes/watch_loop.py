"""What a driver and a scope of a finder have in common: they watch for ever, and start over after any error."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus

from sidecar.core.moment import Moment
from sidecar.core.observations import ConnectionState
from sidecar.drivers.kubernetes.api import Api
from sidecar.drivers.kubernetes.api_error import ApiError
from sidecar.drivers.kubernetes.retries import Retries
from sidecar.drivers.log_throttle import LogThrottle

_log = logging.getLogger("sidecar.kubernetes")


class WatchLoop(ABC):
    """Used by one thread, that of `_run`."""

    def __init__(self, api: Api, subject: str, clock: Callable[[], Moment]) -> None:
        """`subject`: what is watched, for the log."""
        self._api = api
        self._subject = subject
        self._clock = clock
        self._until: str | None = None
        """The resource version up to which everything was reported; None: changes since then are lost."""
        self._retries = Retries()
        self._throttle = LogThrottle()
        self._stopping = threading.Event()

    @abstractmethod
    def _follow(self) -> None:
        """Watch until the watch ends. Raises ApiError."""

    @abstractmethod
    def _set_view(self, at: Moment, connection: ConnectionState) -> None:
        """Report the connection, if it changed."""

    @abstractmethod
    def _refused(self, reason: str) -> None:
        """Report that the API server does not let itself be read."""

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except ApiError as error:
                if not self._stopping.is_set():  # else `stop` has aborted the request
                    self._failed(error)
            except Exception:  # noqa: BLE001  it must not go blind: it starts over after any error
                _log.exception("reading the ConfigMaps of %s failed", self._subject)
                self._until = None
                self._disconnected()
            self._stopping.wait(self._retries.pause())
        self._api.reopen()

    def _failed(self, error: ApiError) -> None:
        if error.status == HTTPStatus.GONE:
            self._until = None
            self._retries.ended(well=False)
        else:
            self._warn(str(error))
            self._disconnected()
            if error.refused:
                self._refused(str(error))

    def _warn(self, problem: str) -> None:
        if self._throttle.is_due(problem):
            _log.warning("%s: %s; retrying", self._subject, problem)

    def _disconnected(self) -> None:
        self._retries.ended(well=False)
        self._api.reopen()
        self._set_view(self._clock(), ConnectionState.SUSPENDED)
