"""A Flink cluster that writes ConfigMaps, and a sidecar's core that watches them: scenarios read as sentences."""

from dataclasses import dataclass, field
from typing import Final

from msgspec import json
from msgspec.structs import replace

from sidecar.core.configmaps import Layout
from sidecar.core.leadership import Component, ComponentId, LeaderInformation
from sidecar.core.observations import ConfigMapObserved, SnapshotCompleted
from sidecar.core.policy import Policy, Store
from tests.core.scenery import ALL_FOUR, CLUSTER, JOB, POLICY, Flink, JobManager, Sidecar, job_manager

KUBERNETES: Final = replace(POLICY, stores={CLUSTER: Store.KUBERNETES})
ONE: Final = f"{CLUSTER}-cluster-config-map"
LEADER: Final = "org.apache.flink.k8s.leader."
A: Final = job_manager("jm-a")
B: Final = job_manager("jm-b")
RENEWAL: Final = 5.0
"""Seconds between two renewals of a leader that lives."""


@dataclass
class ConfigMap:
    """One ConfigMap: `lease` is None where there is no annotation."""

    uid: str
    version: int
    data: dict[str, str] = field(default_factory=dict)
    lease: dict[str, object] | None = None


class LeasingFlink:
    """What a Flink cluster writes in ConfigMaps. Every method that writes is one write for each ConfigMap that it touches."""

    def __init__(self, era: Layout = Layout.K3, duration: object = "PT15S") -> None:
        self.era = era
        self.duration = duration
        self.maps: dict[str, ConfigMap] = {}
        self.changed: list[str] = []
        """ConfigMaps that changed and that the sidecar has not been shown."""
        self._writes = 100

    def name(self, component: ComponentId) -> str:
        if self.era is not Layout.K1:
            return ONE
        return f"{CLUSTER}-{component.job_id or _spelled(component)}-{'jobmanager-' if component.job_id else ''}leader"

    def key(self, component: ComponentId) -> str:
        if component.job_id is None:
            return f"{LEADER}{_spelled(component)}"
        return f"{LEADER}{'job-' if self.era is Layout.K3 else ''}{component.job_id}"

    def takes(self, holder: JobManager, *components: ComponentId) -> "LeasingFlink":
        """`holder` acquires the lease, or the leases of these components: nothing else is written with that."""
        for name in dict.fromkeys(map(self.name, components or ALL_FOUR)):
            resource = self.maps.setdefault(name, ConfigMap(f"uid-{self._writes}", 0))
            transitions = resource.lease and resource.lease["leaderTransitions"]
            self.write(name)
            resource.lease = {
                "holderIdentity": f"jvm {holder.host}",
                "leaseDuration": self.duration,
                "acquireTime": self._stamp(),
                "renewTime": self._stamp(),
                "leaderTransitions": transitions + 1 if isinstance(transitions, int) and self.era is Layout.K3 else 0,
            }
        return self

    def renews(self, *components: ComponentId) -> None:
        for name in dict.fromkeys(map(self.name, components or ALL_FOUR)):
            lease = self.maps[name].lease
            assert lease is not None
            self.write(name)
            # Up to Flink 1.17 this counts renewals.
            count = lease["leaderTransitions"]
            assert isinstance(count, int)
            lease |= {"renewTime": self._stamp(), "leaderTransitions": count if self.era is Layout.K3 else count + 1}

    def releases(self) -> None:
        lease = self.maps[ONE].lease
        assert lease is not None
        self.write(ONE)
        lease |= {"holderIdentity": "", "leaseDuration": 1.0, "acquireTime": self._stamp(), "renewTime": self._stamp()}

    def publishes(self, leader: JobManager, *components: ComponentId) -> "LeasingFlink":
        """`leader` writes its addresses, for all four components unless told otherwise."""
        for component in components or ALL_FOUR:
            self.writes(component, leader.leads(component))
        return self

    def writes(self, component: ComponentId, leader: LeaderInformation) -> None:
        data = self.maps[self.name(component)].data
        if self.era is Layout.K1:
            data |= {"address": leader.address, "sessionId": str(leader.session_id)}
        else:
            data[self.key(component)] = f"{leader.session_id},{leader.address}"
        self.write(self.name(component))

    def removes(self, *components: ComponentId) -> None:
        for component in components:
            for key in ("address", "sessionId") if self.era is Layout.K1 else (self.key(component),):
                self.maps[self.name(component)].data.pop(key, None)
            self.write(self.name(component))

    def submits(self, job_id: str = JOB) -> "LeasingFlink":
        self.maps[self.job_store].data[f"{self._graph}-{job_id}"] = ""
        self.write(self.job_store)
        return self

    def forgets(self, job_id: str = JOB) -> None:
        del self.maps[self.job_store].data[f"{self._graph}-{job_id}"]
        self.write(self.job_store)

    def write(self, name: str) -> None:
        """A write of that ConfigMap, by whomever."""
        self._writes += 1
        self.maps[name].version = self._writes
        self.changed.append(name)

    def deletes(self, name: str = ONE) -> None:
        del self.maps[name]
        self.changed.append(name)

    @property
    def job_store(self) -> str:
        return self.name(ComponentId(Component.DISPATCHER))

    @property
    def _graph(self) -> str:
        return "executionPlan" if self.era is Layout.K3 else "jobGraph"

    def _stamp(self) -> str:
        return f"2026-11-20T08:00:00.{self._writes:06}Z"


def _spelled(component: ComponentId) -> str:
    return component.component.value.replace("_", "")


class LeaseSidecar(Sidecar):
    """A sidecar's core, with a driver that watches ConfigMaps."""

    def __init__(self, leasing: LeasingFlink, policy: Policy = KUBERNETES) -> None:
        super().__init__(Flink(), policy)
        self.leasing = leasing
        self._told: set[str] = set()

    def reads_everything(self) -> None:
        self.leasing.changed.clear()
        self.tells(*sorted(self._told | {*self.leasing.maps}))

    def sees_changes(self) -> "LeaseSidecar":
        changed = list(dict.fromkeys(self.leasing.changed))
        self.leasing.changed.clear()
        self.tells(*changed)
        return self

    def looks(self) -> "LeaseSidecar":
        """Nothing was heard: the driver asks, and tells what stands, changed or not."""
        self.reads_everything()
        return self

    def tells(self, *names: str) -> None:
        self._told.update(names)
        for name in names:
            self.observe(self.shown(name))

    def shown(self, name: str) -> ConfigMapObserved:
        found = self.leasing.maps.get(name)
        if found is None:
            return ConfigMapObserved(self.moment, CLUSTER, name)
        lease = json.encode(found.lease).decode() if found.lease is not None else None
        return ConfigMapObserved(self.moment, CLUSTER, name, found.uid, str(found.version), dict(found.data), lease)

    def completes(self) -> None:
        self.observe(SnapshotCompleted(self.moment, CLUSTER))

    def watches(self, seconds: float, *components: ComponentId) -> "LeaseSidecar":
        """Time passes and leases are renewed: all of them, or those of these components."""
        for _ in range(round(seconds / RENEWAL)):
            self.waits(RENEWAL)
            self.leasing.renews(*components)
            self.sees_changes()
        return self

    def hears_nothing(self, seconds: float) -> "LeaseSidecar":
        """Time passes, nothing is written, and the driver looks every second and a half."""
        for _ in range(round(seconds / 1.5)):
            self.waits(1.5)
            self.looks()
        return self


def leased(
    leader: JobManager = A, era: Layout = Layout.K3, policy: Policy = KUBERNETES
) -> tuple[LeasingFlink, LeaseSidecar]:
    """A running cluster with one job, led by `leader`, and a sidecar that has been seeing it for a minute."""
    flink = LeasingFlink(era).takes(leader).submits().publishes(leader)
    sidecar = LeaseSidecar(flink, policy)
    sidecar.connects()
    sidecar.watches(60)
    sidecar.records.clear()
    return flink, sidecar
