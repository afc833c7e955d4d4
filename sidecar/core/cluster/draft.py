"""One cluster in one step: collects the next state and what is to be recorded."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, ComponentState
from sidecar.core.cluster.record_writer import RecordWriter
from sidecar.core.failover.recovery_state import BadRestore
from sidecar.core.flink.leadership import (
    CLUSTER_COMPONENTS,
    ComponentId,
    Unknown,
    Vacant,
)
from sidecar.core.leadership.transitions import Transition
from sidecar.core.moment import Moment
from sidecar.core.overlay import with_items, without_items
from sidecar.core.policy.policy import Policy
from sidecar.core.records import Contention, Coverage, Death, EpisodeRecord, HaCheck, Recovery, StatusRecord

Happened = Transition | Coverage | Contention | EpisodeRecord | Death | Recovery | StatusRecord | HaCheck | BadRestore
"""What one step records about a cluster, and what rules evaluate."""
ClusterStep = tuple[ClusterState, list[Happened]]


class Draft:
    """The next state of one cluster, while a step builds it.

    `state` lacks the components that the step touched: thousands of jobs may change in one step, and `outcome` adds them together.
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
        """The next state (the same object if nothing changed), and what happened."""
        if self._components or self._ended:
            components = without_items(self.components(), self._ended)
            self.update(components=components, contested=self.state.contested - self._ended)
        return self.state, self.happened

    def update(self, **fields: Any) -> None:
        """Set fields of the state, except `components`."""
        self.state = replace(self.state, **fields)

    def state_of(self, component: ComponentId) -> ComponentState | None:
        """The current state of `component`."""
        if component in self._ended:
            return None
        return self._components.get(component) or self.before.components.get(component)

    def components(self) -> Mapping[ComponentId, ComponentState]:
        """All components, including those removed in this step."""
        return with_items(self.before.components, self._components)

    def all_states(self) -> Iterator[tuple[ComponentId, ComponentState]]:
        """All components with their current state."""
        for component in self.components():
            if state := self.state_of(component):
                yield component, state

    def own_states(self) -> list[tuple[ComponentId, ComponentState]]:
        """The cluster's own components with their current state."""
        return [(component, state) for component in CLUSTER_COMPONENTS if (state := self.state_of(component))]

    def keep(self, component: ComponentId, state: ComponentState) -> None:
        """Set the state of `component`."""
        self._ended.discard(component)
        self._components[component] = state

    def remove(self, component: ComponentId) -> None:
        """Forget `component`."""
        self._components.pop(component, None)
        self._ended.add(component)

    def newcomer(self) -> ComponentState:
        """The state of a new component: vacant in a view that is complete and hides no leaders, unknown otherwise."""
        hides = self.state.beyond is not None and self.state.beyond.hides_leaders
        return ComponentState(Vacant() if self.state.view.complete and not hides else Unknown(), self.at)
