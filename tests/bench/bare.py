"""The least that a listener on the API server can be in Python: `python -m tests.bench.bare URL CA TOKEN NAMESPACE NAME`.

It prints a line for each event. One request and its stream, on urllib3 alone: no list before it, no reconnect, no lease, no second
component. JSON is decoded and encoded as `watch` does it.
"""

import sys
from uuid import UUID

import urllib3
from msgspec import Struct, json

from sidecar.core.moment import timestamp
from sidecar.runtime.clock import Clock
from tests.bench.minimal import Line

_DISPATCHER = "org.apache.flink.k8s.leader.dispatcher"


class ConfigMap(Struct):
    """What is looked at of it."""

    data: dict[str, str] = {}


class Event(Struct):
    """One line of the stream."""

    object: ConfigMap


def main(url: str, authority: str, token: str, namespace: str, name: str) -> None:
    """Until it is killed."""
    clock = Clock()
    events = json.Decoder(Event)
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
                record = Line(timestamp(clock().wall), "dispatcher", None, address, UUID(session))
                print(json.encode(record).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
