"""The least that a listener on kazoo can be: `python -m tests.bench.minimal HOST:PORT PATH` prints a line for each value it gets.

One path, one one-shot watch, set anew by the read that it led to, in kazoo's own thread. No hand-over to another thread, no reconnect,
no deletion, no second path, no accounting. The bytes are decoded, and the line is encoded, as `watch` does it.
"""

import sys
import threading
from uuid import UUID

from kazoo.client import KazooClient
from msgspec import Struct, json

from sidecar.core.flink.leadership import LeaderInformation, decode_connection_info
from sidecar.core.moment import timestamp
from sidecar.runtime.clock import Clock


class Line(Struct):
    """The fields of `watch --view flink --output json`."""

    at: str
    component: str
    job_id: str | None
    leader_address: str
    leader_session_id: UUID


def main(quorum: str, path: str) -> None:
    """Until it is killed."""
    clock = Clock()
    client = KazooClient(quorum)

    def read(_event: object = None) -> None:
        data, _ = client.get(path, watch=read)
        leader = decode_connection_info(data)
        if isinstance(leader, LeaderInformation):
            line = Line(timestamp(clock().wall), "dispatcher", None, leader.address, leader.session_id)
            print(json.encode(line).decode(), flush=True)

    client.start()
    read()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
