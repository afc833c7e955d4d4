"""The one exception of this driver's border."""


class ApiError(Exception):
    """The API server was not reached, or did not do what it was asked: one line, free of secrets.

    `status` is the HTTP status of its answer, None where there was none.
    """

    def __init__(self, line: str, status: int | None = None) -> None:
        super().__init__(line)
        self.status = status
