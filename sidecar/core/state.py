"""What the owner's thread knows. Values, never changed in place: a step makes new ones and shares what stayed the same."""

from collections.abc import Mapping

from msgspec import Struct

from sidecar.core.alerting.alerts import Alerts
from sidecar.core.cluster.state import ClusterState
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.evidence import Capture
from sidecar.core.moment import Moment


class State(Struct, frozen=True):
    """The owner's state. The journal keeps it, but for what a new process observes anew: see `journal_rows`."""

    clusters: Mapping[str, ClusterState] = {}
    alerts: Alerts = Alerts()
    outbox: Mapping[str, Delivery] = {}
    """What is still to be delivered, oldest first."""
    captures: Mapping[str, Capture] = {}
    """What was requested to be captured, and is not answered yet."""
    alive: Moment | None = None
    """Until when the sidecar is known to have run."""
