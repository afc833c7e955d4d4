"""The one exception that requests to the API server raise."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from sidecar.net.retry_after import asked_wait

_LONGEST_WAIT: Final = 60.0
_THROTTLED_WAIT: Final = 1.0
"""The wait in seconds that API Priority and Fairness asks for."""


class ApiError(Exception):
    """The API server is unreachable or refused a request: one line, free of secrets.

    `status` is the HTTP status of the answer, None if there was none.
    """

    def __init__(self, line: str, status: int | None = None, retry_after: float = 0.0) -> None:
        """`retry_after`: how many seconds the API server asks to wait."""
        super().__init__(line)
        self.status = status
        self.retry_after = retry_after

    @property
    def refused(self) -> bool:
        """Whether the API server can be reached and does not allow the request, as far as is known."""
        return self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}

    @property
    def throttled(self) -> bool:
        """Whether the API server has too much to do for us now (API Priority and Fairness)."""
        return self.status == HTTPStatus.TOO_MANY_REQUESTS


class AccessError(ApiError):
    """The credentials with which to ask the API server are missing."""

    @property
    def refused(self) -> bool:
        return True


class TooLargeError(ApiError):
    """An answer is larger than it may be."""


def wait_after(status: int, headers: Mapping[str, str]) -> float:
    """How many seconds to wait after an answer, as it asks, within bounds."""
    seconds = min(asked_wait(headers) or 0.0, _LONGEST_WAIT)
    return max(seconds, _THROTTLED_WAIT) if status == HTTPStatus.TOO_MANY_REQUESTS else seconds
