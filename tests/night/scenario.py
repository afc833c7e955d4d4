"""One row of the night: what is done, and what may truly be said of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sidecar.core.flink.deployments import Maker

if TYPE_CHECKING:
    from tests.night.night import Night

Act = Callable[["Night"], None]
BOTH: Final = frozenset({"zookeeper", "kubernetes"})
ZOOKEEPER: Final = frozenset({"zookeeper"})
KUBERNETES: Final = frozenset({"kubernetes"})
OK: Final = frozenset({"OK"})
ONE_LEFT: Final = frozenset({"OK", "DEGRADED"})
"""All jobs run; that no standby is left may be said already, or not yet."""
LOST: Final = frozenset({"LOST"})
STOPPED: Final = frozenset({"STOPPED"})
FAILOVER: Final = frozenset({"OK", "SILENT", "DOWN", "RECOVERING", "NOT_RUNNING", "DEGRADED"})
"""What a cluster passes through while its leader is lost, whatever else it is by then."""
NO_LOSS: Final = frozenset({"OK", "DEGRADED", "RECOVERING"})
"""What it passes through if nothing is lost."""


class Scenario(Struct, frozen=True):
    """One row. `act` returns once what it does is done; then its end is waited for, which `final` names."""

    act: Act
    causes: frozenset[str] = frozenset()
    """True causes of its failover. Empty: no leader changes."""
    ends_by: frozenset[str] = frozenset()
    """True reasons of a death of which nobody is the author: a JobManager that ends itself. Those that are killed are noted one by one."""
    final: frozenset[str] = OK
    """The true status at its end."""
    through: frozenset[str] = FAILOVER
    """Every status on the way to there that is true at some time."""
    recovery: frozenset[str] = frozenset({"recovered"})
    """True verdicts of its recovery."""
    planned: bool = False
    """Somebody wants it: no message may be red."""
    deployed: bool = False
    """What makes the JobManagers was changed: records say that the failover was planned."""
    said: bool | None = True
    """Whether a message has to arrive. None: it may; False: none may."""
    unobserved: bool = False
    """The sidecar does not run meanwhile: what it says comes as late as it does itself."""
    lost: int = 0
    """So many jobs are lost."""
    cuts: bool = False
    """It cuts somebody off from the store. Played by its name alone, on a lab where deaths in ZooKeeper are not known."""
    stores: frozenset[str] = BOTH
    maker: Maker = Maker.DEPLOYMENT
    """In Kubernetes: what makes the JobManagers."""
