"""The only kind of error that is shown to operators."""

from typing import ClassVar

from sidecar import __version__


class OperatorError(Exception):
    """An error that an operator can act on. Its text is one line without secrets: what was being done, to what, what to do."""

    exit_status: ClassVar[int] = 1
    """1: failed at run time. 2: wrong usage or configuration. 3: what was asked cannot be told."""


def installing(extra: str) -> str:
    """The command that installs the package with this extra. A package index has releases alone, and no development version."""
    package, where = (".", " in a clone of its repository") if "-" in __version__ else ("flink-ha-sidecar", "")
    return f"pip install '{package}[{extra}]'{where}"
