"""Flink's view of ConfigMaps: what is written leads, whoever holds the lease."""

import pytest

from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.observations import ClusterObservation, ConnectionState, ViewObserved
from sidecar.core.views.leader_view import FlinkView, LeaderAddress
from tests.kit.cluster import CLUSTER, DISPATCHER, A, B
from tests.kit.config_maps import ONE, ConfigMaps
from tests.kit.core_sidecar import LeaseSidecar
from tests.kit.fake_flink import Flink

LED_BY_A = A.leads(DISPATCHER).address
LED_BY_B = B.leads(DISPATCHER).address


class Listener:
    """The calls that the dispatcher's listener gets, as addresses."""

    def __init__(self, era: ConfigMapLayout = ConfigMapLayout.K3) -> None:
        self.flink = Flink(ConfigMaps(era)).grant(A)
        self.calls: list[str | None] = []
        self._view = FlinkView()
        self._driver = LeaseSidecar(self.flink)

    def sees(self) -> "Listener":
        self._observe(self._driver.shown(self.flink.config_maps.name(DISPATCHER)))
        return self

    def is_(self, connection: ConnectionState) -> None:
        self._observe(ViewObserved(self._driver.moment, CLUSTER, connection))

    def _observe(self, observation: ClusterObservation) -> None:
        calls: list[LeaderAddress] = self._view.observe(observation)
        self.calls += [call.leader_address for call in calls if call.component == "dispatcher"]


@pytest.mark.parametrize("era", ConfigMapLayout)
def test_neither_a_renewal_nor_another_holder_is_a_call(era: ConfigMapLayout) -> None:
    """The old address leads until it is overwritten: A->B, without a null between."""
    listener = Listener(era)
    listener.flink.publish_all(A, DISPATCHER)
    listener.sees()
    listener.flink.config_maps.renew(DISPATCHER)
    listener.sees()
    listener.flink.grant(B, DISPATCHER)
    listener.sees()
    listener.flink.publish_all(B, DISPATCHER)
    listener.sees().sees()
    assert listener.calls == [LED_BY_A, LED_BY_B]


@pytest.mark.parametrize("era", ConfigMapLayout)
def test_null_is_a_key_that_is_gone(era: ConfigMapLayout) -> None:
    """Not a connection that is, and not a ConfigMap: that one is made anew, without the key."""
    listener = Listener(era)
    listener.flink.publish_all(A, DISPATCHER)
    listener.sees()
    for connection in (ConnectionState.SUSPENDED, ConnectionState.LOST, ConnectionState.CONNECTED):
        listener.is_(connection)
    listener.flink.config_maps.delete(listener.flink.config_maps.name(DISPATCHER))
    listener.sees()
    assert listener.calls == [LED_BY_A]
    listener.flink.grant(A, DISPATCHER)
    listener.sees()
    assert listener.calls == [LED_BY_A, None]


def test_a_value_that_nobody_can_read_is_none_since_1_15() -> None:
    """Flink logs it and goes on as with no leader; before, the listener kept what it had."""
    for era, calls in ((ConfigMapLayout.K3, [LED_BY_A, None, LED_BY_A]), (ConfigMapLayout.K1, [LED_BY_A])):
        listener = Listener(era)
        for value in (None, "garbage", None):
            listener.flink.publish_all(A, DISPATCHER)
            if value and era is ConfigMapLayout.K3:
                listener.flink.config_maps[ONE].data[listener.flink.config_maps.key(DISPATCHER)] = value
            elif value:
                listener.flink.config_maps[listener.flink.config_maps.name(DISPATCHER)].data["sessionId"] = value
            listener.sees()
        assert listener.calls == calls
