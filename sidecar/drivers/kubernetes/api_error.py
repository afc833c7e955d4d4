"""The one exception that requests to the API server raise."""


class ApiError(Exception):
    """The API server is unreachable or refused a request: one line, free of secrets.

    `status` is the HTTP status of the answer, None if there was none.
    """

    def __init__(self, line: str, status: int | None = None) -> None:
        super().__init__(line)
        self.status = status


class TooLargeError(ApiError):
    """An answer is larger than it may be."""
