"""The checks over a ZooKeeper, and what of Flink is there to check."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.security import make_acl

from sidecar.core.ha.finding import CheckVerdict, Finding
from sidecar.core.ha.zookeeper_checks import ZOOKEEPER_CHECKS
from sidecar.drivers.zookeeper.ensemble_probe import EnsembleProbe
from sidecar.settings import Secret, ZooKeeperSettings
from tests.kit.cluster import A
from tests.kit.commands_scene import JobManagers
from tests.kit.driver_recorder import now
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected

CREDENTIALS: Final = "flink:hunter2"
DIGEST: Final = {"digest": Secret(CREDENTIALS)}
CREATOR: Final = [make_acl("auth", "", all=True)]

Findings = dict[str, Finding]


@contextmanager
def led(address: str, place: str, names: str = "ab") -> Iterator[JobManagers]:
    """A cluster whose JobManagers have these names; the first one leads."""
    cluster = JobManagers(address, place, names)
    try:
        yield cluster
    finally:
        cluster.stop()


def findings(address: str, place: str, *, later: int = 0, wall: int | None = None, **settings: Any) -> Findings:
    """What all checks find. `later`: by how many microseconds the sidecar's clock is ahead; `wall`: what it shows."""
    options: dict[str, Any] = {
        "session_timeout": 10.0,
        "connection_timeout": 5.0,
        "tolerate_suspended": True,
    } | settings
    options = {"flink_session_timeout": 60.0} | options
    cluster = ZooKeeperSettings(address, f"/flink/{place}", place, **options)
    facts = EnsembleProbe(cluster, lambda: now().wall + later if wall is None else wall).read()
    return {name: check(facts) for name, check in ZOOKEEPER_CHECKS.items()}


def verdicts(findings: Findings, verdict: CheckVerdict) -> set[str]:
    """The checks that have it."""
    return {name for name, finding in findings.items() if finding.verdict is verdict}


@contextmanager
def creator(address: str) -> Iterator[KazooClient]:
    """Flink with `client.acl: creator`: nobody else may read or change what it writes."""
    with connected(address, auth_data=[("digest", CREDENTIALS)], default_acl=CREATOR) as client:
        yield client


def contend(client: KazooClient, namespace: str) -> None:
    """As a JobManager that leads."""
    Flink(ZNodes(writer=ZooKeeperWriter(client, namespace))).submit().elect(A)
    client.create(f"{namespace}/leader/latch/_c_latch-", ephemeral=True, sequence=True)
