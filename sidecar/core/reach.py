"""How far requests got. Short-lived processes use it too: it imports next to nothing."""

from enum import StrEnum


class Reach(StrEnum):
    """How far requests to a REST server got."""

    ANSWERS = "answers"
    """The server answered a request over HTTP, whatever the status: its process works."""
    SILENT = "silent"
    """The server was connected, and did not answer."""
    UNREACHABLE = "unreachable"
    """There was no connection: refused, dropped, or no such host."""
