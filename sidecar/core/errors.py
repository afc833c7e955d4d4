"""The only kind of error that is shown to operators."""

from typing import ClassVar


class OperatorError(Exception):
    """An error that an operator can act on. Its text is one line without secrets: what was being done, to what, what to do."""

    exit_status: ClassVar[int] = 1
    """1: failed at run time. 2: wrong usage or configuration. 3: what was asked cannot be told."""
