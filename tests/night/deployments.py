"""Planned actions on what makes JobManagers in Kubernetes, and a broken rollout, which is none. What is pretended: `makers`."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sidecar.core.flink.deployments import Maker
from tests.night.scenario import FAILOVER, KUBERNETES, OK, STOPPED, Act, Scenario

if TYPE_CHECKING:
    from tests.night.night import Night

_ROLLED: Final = frozenset({"planned_upgrade", "graceful_handover"})
_BY: Final = frozenset({"stopped", "replaced", "deleted", "drained"})
_MADE_ANEW: Final = frozenset({"graceful_handover", "planned_upgrade", "jobmanager_lost"})
_UNPROVEN: Final = frozenset({"recovered", "degraded", "unproven"})


def _scale_to_0(night: "Night") -> None:
    night.deployed.scale(0)


def _scale_to_0_and_back(night: "Night") -> None:
    night.deployed.scale(0)
    time.sleep(45)
    night.deployed.scale(2)


def _delete(*, foreground: bool) -> Act:
    return lambda night: night.deployed.delete(foreground=foreground)


def _roll(*, at_once: bool, pull_seconds: float = 0.0) -> Act:
    return lambda night: night.deployed.roll(at_once=at_once, pull_seconds=pull_seconds)


def _drain(night: "Night") -> None:
    night.deployed.drain(night.leader())


def _pod_deleted(night: "Night") -> None:
    night.deployed.replace(night.leader())


def _store_away_in_a_rollout(night: "Night") -> None:
    """The API server goes when the JobManagers have ended, and comes back."""
    night.deployed.roll(at_once=False)
    night.store_down()
    time.sleep(10)
    night.store_up()
    night.supervise()


def _no_image(night: "Night") -> None:
    night.deployed.roll_without_an_image()


def _stops(act: Act) -> Scenario:
    return Scenario(
        act, _MADE_ANEW, _BY, STOPPED, FAILOVER | {"STOPPED"}, planned=True, deployed=True, said=None, stores=KUBERNETES
    )


def _rolls(act: Act, causes: frozenset[str] = _ROLLED) -> Scenario:
    return Scenario(
        act, causes, _BY, through=FAILOVER | {"BLIND"}, planned=True, deployed=True, said=None, stores=KUBERNETES
    )


def _of(kind: Maker) -> Mapping[str, Scenario]:
    """What can be done to a maker of this kind."""
    back = replace(_stops(_scale_to_0_and_back), final=OK, recovery=_UNPROVEN)
    rows: Mapping[str, Scenario] = {
        "is rolled out, one after the other": _rolls(_roll(at_once=False)),
        "is rolled out, all at once": _rolls(_roll(at_once=True)),
        "is rolled out, and its image takes 40 s": _rolls(_roll(at_once=True, pull_seconds=40)),
        "is scaled to 0": _stops(_scale_to_0),
        "is scaled to 0, and back after 45 s": back,
        "is deleted": _stops(_delete(foreground=False)),
        "is deleted in the foreground": _stops(_delete(foreground=True)),
    }
    return {f"a {kind} {what}": replace(row, maker=kind) for what, row in rows.items()}


DEPLOYMENTS: Final[Mapping[str, Scenario]] = {
    **_of(Maker.DEPLOYMENT),
    **_of(Maker.STATEFUL_SET),
    "the leader's node is drained": _rolls(_drain, frozenset({"node_drain"})),
    "the API server is away during a rollout": _rolls(
        _store_away_in_a_rollout, _ROLLED | {"store_outage", "lease_renewal_failed"}
    ),
}
"""Nobody loses anything by them."""
BROKEN: Final[Mapping[str, Scenario]] = {
    "the leader's pod is deleted": Scenario(_pod_deleted, _MADE_ANEW, _BY, stores=KUBERNETES),
    "a Deployment is rolled out, and its image is not found": Scenario(
        _no_image,
        _ROLLED,
        _BY,
        frozenset({"DOWN"}),
        recovery=frozenset({"lost", "unproven"}),
        deployed=True,
        stores=KUBERNETES,
    ),
}
"""Losses, although somebody did something to a maker."""
