"""The last results of the checks of high availability, as the state of a cluster has them."""

from collections.abc import Mapping

from msgspec import Struct

from sidecar.core.ha.results import CheckResult
from sidecar.core.moment import Moment


class KnownCheck(Struct, frozen=True):
    """One check."""

    result: CheckResult
    since: Moment
    """Since when it has this verdict, as far as this sidecar knows."""
    recorded_at: Moment
    """When it was last recorded."""
    risk_since: Moment | None = None
    """Since when it is a RISK, and has not passed since: what cannot be read any more may still be one."""


class Checked(Struct, frozen=True):
    """All checks of one cluster."""

    at: Moment
    checks: Mapping[str, KnownCheck] = {}
    """By name, in the order in which they are shown."""
