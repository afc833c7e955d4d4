"""A cluster that nobody wants for a time is said to be stopped once, and once that all runs again."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.outbox import Delivery
from sidecar.core.flink.deployments import FlinkDeployment, Maker, Seen
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeploymentObserved, MakerObserved
from sidecar.core.policy.policy import Destination, Policy, Store
from sidecar.core.policy.routing import Route
from tests.core.alerting.test_to_its_end import MAIL, RESTARTING
from tests.core.auditor import PAGER
from tests.core.cluster.pictures import ASSESSING, before, shows
from tests.core.failover.test_assessment import looks
from tests.kit.cluster import ALL_FOUR, CLUSTER, B
from tests.kit.core_sidecar import LeaseSidecar, Sidecar, leased, watching, with_destinations
from tests.kit.fake_flink import Flink
from tests.simulation.test_rule_test import SHIPPED

NAME: Final = "flink-jobmanager"
MAKERS: Final = (Maker.DEPLOYMENT, Maker.STATEFUL_SET, Maker.JOB, Maker.FLINK_DEPLOYMENT)
AWAY: Final = 45


def shipped(to: Destination, interval: int) -> Policy:
    """The shipped rules."""
    route = Route("ops", group_wait=5 * SECOND, group_interval=interval * SECOND)
    rules = SHIPPED.rules
    return replace(
        with_destinations(to, policy=ASSESSING), rules=rules.rules, inhibit_rules=rules.inhibit_rules, route=route
    )


def _maker(sidecar: Sidecar, kind: Maker, generation: int, *, wanted: bool) -> None:
    """What makes the JobManagers, as it is read."""
    own = "" if kind is Maker.FLINK_DEPLOYMENT else NAME
    read = FlinkDeployment("u", generation, generation, suspended=not wanted, kind=kind, name=own)
    if kind is Maker.FLINK_DEPLOYMENT:
        sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, read))
    else:
        sidecar.observe(MakerObserved(sidecar.moment, CLUSTER, Seen(kind, NAME, read, frozenset({"jm-a"}), alone=True)))


def _runs(sidecar: Sidecar, seconds: int = 12) -> None:
    """Its jobs do, for so long."""
    for _ in range(seconds):
        shows(sidecar, before(sidecar))
        sidecar.waits(1)


def _back(flink: Flink, sidecar: Sidecar, running_after: int) -> Sequence[Delivery]:
    """What is sent by the end, when B has led one component after the other, and then its jobs run."""
    flink.grant(B)
    for component in ALL_FOUR:
        sidecar.sees(flink.publish_all(B, component)).waits(0.3)
    looks(sidecar, RESTARTING, seconds=running_after)
    for _ in range(30):
        looks(sidecar, None, seconds=5)
        if isinstance(sidecar, LeaseSidecar):
            sidecar.sees(flink.config_maps.renew())
    return sidecar.sent


def stopped_and_back(kind: Maker, policy: Policy, running_after: int) -> Sequence[Delivery]:
    """Scaled to 0, or suspended, and back."""
    flink, sidecar = watching(policy=policy)
    _maker(sidecar, kind, 1, wanted=True)
    _runs(sidecar)
    _maker(sidecar, kind, 2, wanted=False)
    sidecar.waits(2).sees(flink.vacate()).waits(AWAY)
    _maker(sidecar, kind, 3, wanted=True)
    sidecar.waits(5)
    return _back(flink, sidecar, running_after)


def finished_and_started_again(policy: Policy, running_after: int) -> Sequence[Delivery]:
    """An application: Flink withdraws and deletes its ConfigMap, and later there is another one."""
    flink, sidecar = leased(policy=replace(policy, stores={CLUSTER: Store.KUBERNETES}))
    _runs(sidecar)
    sidecar.sees(flink.vacate())
    flink.config_maps.delete()
    sidecar.sees_changes().waits(AWAY)
    return _back(flink, sidecar, running_after)


SCENES: Final[Mapping[str, Callable[[Policy, int], Sequence[Delivery]]]] = {
    **{kind.value: partial(stopped_and_back, kind) for kind in MAKERS},
    "an application": finished_and_started_again,
}


@pytest.mark.parametrize("to", [MAIL, PAGER], ids=lambda to: to.name)
@pytest.mark.parametrize("interval", [10, 60])
@pytest.mark.parametrize("running_after", [0, 4, 6])
@pytest.mark.parametrize("scene", SCENES)
def test_it_is_stopped_once_and_all_runs_again_once(
    scene: str, running_after: int, interval: int, to: Destination
) -> None:
    """Also if its jobs run before the failover is recorded, or just when it is: who led before and after is in the same message."""
    sent = SCENES[scene](shipped(to, interval), running_after)
    said = [(message.status, message.title, message.alert) for message in sent]
    assert [message.status for message in sent if message.status in {"STOPPED", "OK"}] == ["STOPPED", "OK"], said
    assert {message.kind for message in sent if message.status == "STOPPED"} == {"info"}
    assert sent[-1].status == "OK"
    assert {message.severity.value for message in sent} == {"info"}
