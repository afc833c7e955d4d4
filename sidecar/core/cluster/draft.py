"""One cluster in one step: what is observed becomes transitions, and these become the next state and what is to be recorded."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from sidecar.core.cluster.record_writer import RecordWriter
from sidecar.core.cluster.state import ClusterState, ComponentState
from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import (
    ComponentId,
    Unknown,
    Vacant,
)
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy
from sidecar.core.records import Contention, Coverage, EpisodeRecord

Happened = Transition | Coverage | Contention | EpisodeRecord
"""What is to be recorded of a cluster."""
ClusterStep = tuple[ClusterState, list[Happened]]


class Draft:
    """What becomes of one cluster in one step.

    `state` is the next state, but for the components that the step touched: thousands of jobs may change in one, and are taken over
    together, by `outcome`.
    """

    def __init__(self, policy: Policy, cluster_id: str, cluster: ClusterState, at: Moment) -> None:
        self.policy = policy
        self.cluster_id = cluster_id
        self.before = cluster
        self.state = cluster
        self.at = at
        self.happened: list[Happened] = []
        self.writer = RecordWriter(policy, cluster_id, at)
        self._components: dict[ComponentId, ComponentState] = {}
        self._ended: set[ComponentId] = set()

    def outcome(self) -> ClusterStep:
        """The next state, the same object where nothing changed, and what happened."""
        if self._components or self._ended:
            components = self.components()
            for component in self._ended:
                components.pop(component, None)
            self.update(components=components, contested=self.state.contested - self._ended)
        return self.state, self.happened

    def update(self, **fields: Any) -> None:
        """Set fields of the state, `components` excepted."""
        self.state = replace(self.state, **fields)

    def known(self, component: ComponentId) -> ComponentState | None:
        """What is known of `component` now."""
        if component in self._ended:
            return None
        return self._components.get(component) or self.before.components.get(component)

    def components(self) -> dict[ComponentId, ComponentState]:
        """All components of this step and before it, also those that have ended in it."""
        return {**self.before.components, **self._components}

    def all_known(self) -> Iterator[tuple[ComponentId, ComponentState]]:
        """All components, as they are known now."""
        for component in self.components():
            if known := self.known(component):
                yield component, known

    def keep(self, component: ComponentId, known: ComponentState) -> None:
        """Have `known` be what is known of `component`. One that has ended in this step begins anew."""
        self._ended.discard(component)
        self._components[component] = known

    def remove(self, component: ComponentId) -> None:
        """Have nothing be known of `component` any more."""
        self._components.pop(component, None)
        self._ended.add(component)

    def newcomer(self) -> ComponentState:
        """A component that was not known: in a complete view it had no leader, in an incomplete one that is unknown."""
        return ComponentState(Vacant() if self.state.view.complete else Unknown(), self.at)
