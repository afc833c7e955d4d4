"""Where the sidecar runs, in the words of a leader's address."""

import socket

from sidecar.app.this_machine import own_hosts
from sidecar.core.pods import is_at
from sidecar.settings.model import OwnPod


def test_in_a_pod_it_is_the_pod() -> None:
    """The machine has other pods."""
    hosts = own_hosts(OwnPod("jm-0", "10.0.0.1"))
    assert is_at("pekko.tcp://flink@10.0.0.1:6123/user/rpc/dispatcher_0", hosts)
    assert is_at("http://jm-0.jm.flink.svc:8081", hosts)
    assert not is_at(f"http://{socket.gethostname()}:8081", hosts)


def test_on_a_machine_it_has_its_names_and_addresses() -> None:
    """As a JobManager may publish it."""
    hosts = own_hosts(None)
    for place in (socket.gethostname(), "localhost", "127.0.0.1"):
        assert is_at(f"pekko.tcp://flink@{place}:6123/user/rpc/dispatcher_0", hosts)
    assert not is_at("pekko.tcp://flink@203.0.113.7:6123/user/rpc/dispatcher_0", hosts)
