"""The one kind of error that reaches people."""

from typing import ClassVar


class OperatorError(Exception):
    """Something that an operator can act on. Its text is one line: what was being done, to what, what to do. No secret is in it."""

    exit_status: ClassVar[int] = 1
    """1: failed at run time. 2: wrong usage or configuration."""
