"""The exception of the lab."""

from sidecar.core.errors import OperatorError


class LabError(OperatorError):
    """An operation of the lab failed. The message names the log of a process that died."""
