"""The one exception of the lab."""

from sidecar.core.errors import OperatorError


class LabError(OperatorError):
    """The lab cannot do what it was asked. The line names the log of a process that died."""
