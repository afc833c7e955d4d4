"""The least that a listener can be in Python: `python -m tests.bench.least zookeeper HOST:PORT PATH`, which prints a line for each value.

On ZooKeeper: one path, one one-shot watch, set anew by the read that it led to, in kazoo's own thread. On an API server
(`… kubernetes URL CA TOKEN NAMESPACE NAME`): one request and its stream, on urllib3 alone. No list before it, no other thread, no
reconnect, no deletion, no lease, no second component. What comes is decoded, and the line is encoded, as `watch` does it.
"""

import sys
import threading
from uuid import UUID

from msgspec import Struct, json

from sidecar.core.moment import timestamp
from sidecar.runtime.clock import Clock

_DISPATCHER = "org.apache.flink.k8s.leader.dispatcher"


class Line(Struct):
    """The fields of `watch --view flink --output json`."""

    at: str
    component: str
    job_id: str | None
    leader_address: str
    leader_session_id: UUID


class ConfigMap(Struct):
    """What is looked at of it."""

    data: dict[str, str] = {}


class Event(Struct):
    """One line of the stream."""

    object: ConfigMap


def _print(clock: Clock, address: str, session_id: UUID) -> None:
    line = Line(timestamp(clock().wall), "dispatcher", None, address, session_id)
    print(json.encode(line).decode(), flush=True)


def on_zookeeper(quorum: str, path: str) -> None:
    """Until it is killed."""
    from kazoo.client import KazooClient

    from sidecar.core.flink.leadership import LeaderInformation, decode_connection_info

    clock, client = Clock(), KazooClient(quorum)

    def read(_event: object = None) -> None:
        data, _ = client.get(path, watch=read)
        leader = decode_connection_info(data)
        if isinstance(leader, LeaderInformation):
            _print(clock, leader.address, leader.session_id)

    client.start()
    read()
    threading.Event().wait()


def on_kubernetes(url: str, authority: str, token: str, namespace: str, name: str) -> None:
    """Until it is killed."""
    import urllib3

    clock, events = Clock(), json.Decoder(Event)
    response = urllib3.PoolManager(ca_certs=authority).request(
        "GET",
        f"{url}/api/v1/namespaces/{namespace}/configmaps",
        fields={"watch": "true", "fieldSelector": f"metadata.name={name}"},
        headers={"Authorization": f"Bearer {token}"},
        preload_content=False,
        timeout=urllib3.Timeout(connect=5, read=600),
    )
    rest = b""
    for piece in response.stream():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            session, _, address = events.decode(line).object.data.get(_DISPATCHER, "").partition(",")
            if session:
                _print(clock, address, UUID(session))


if __name__ == "__main__":
    (on_zookeeper if sys.argv[1] == "zookeeper" else on_kubernetes)(*sys.argv[2:])
