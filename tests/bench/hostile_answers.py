"""What a hostile tenant's servers answer, and what it writes into the shared documents: each as large as its bound lets it be."""

import json
import socket
import time
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from sidecar.core.alerting import ledger_document
from sidecar.core.alerting.ledger_document import MOST_OBSERVERS, Ledger, LedgerEntry, Presence
from sidecar.core.bounds import EVIDENCE_ANSWER, LEDGER, OBSERVER, REST_ANSWER
from sidecar.core.moment import SECOND
from sidecar.sinks.peers import PATH
from tests.kit.flink_rest_server import Answer, RestServer

_LONG: Final = "x" * 90


def rest_server() -> RestServer:
    """One that is Flink's and another observer's, both at their bounds."""
    now = int(time.time() * 1000)
    tasks = {"total": 1, "running": 1, "finished": 0}
    times = {"start-time": now, "last-modification": now, "duration": 1}
    job = {"name": _LONG, "state": "RUNNING", "tasks": tasks, **times}
    each = _number_of({**job, "jid": "0" * 32}, REST_ANSWER.most_bytes)
    jobs = [{**job, "jid": f"{number:032x}"} for number in range(each)]
    ids = [{"id": f"{_LONG}{number}"} for number in range(_number_of({"id": _LONG + "00000"}, REST_ANSWER.most_bytes))]
    applications = {"name": _LONG, "status": "RUNNING"}
    thread = {"threadName": _LONG, "stringifiedThreadInfo": _LONG * 10}
    view = {"cluster_id": "flink/x", "observer": "evil", "sees": True, "vacant": ["job"] * 12, "rest_server": None}
    bodies: Mapping[str, Any] = {
        "/overview": {"slots-total": 1, "slots-available": 0},
        "/jobs/overview": {"jobs": jobs},
        "/taskmanagers": {"taskmanagers": ids},
        "/applications/overview": {"applications": [applications] * _number_of(applications, REST_ANSWER.most_bytes)},
        "/jobmanager/config": [],
        "/jobmanager/thread-dump": {"threadInfos": [thread] * _number_of(thread, EVIDENCE_ANSWER.most_bytes)},
        PATH: [view] * min(OBSERVER.most_items, _number_of(view, OBSERVER.most_bytes)),
    }
    return RestServer({path: [Answer(body)] for path, body in bodies.items()})


def _number_of(item: object, most: int) -> int:
    """How many of it fit into so many bytes, with a little room."""
    return (most - 200) // (len(json.dumps(item)) + 2)


def mail_server(connection: socket.socket) -> None:
    """Its greeting does not end."""
    while True:
        connection.sendall(b"220-hello\r\n" * 1_000)


def ledger(address: str) -> bytes:
    """As many entries and observers as there may be, all of them somebody else's. `address`: where these observers are asked."""
    wall = round(time.time() * SECOND)
    names = [f"evil-{number}" for number in range(MOST_OBSERVERS - 1)]
    entries = {
        f"ops/0 {uuid4()}": LedgerEntry({str(uuid4()): 0}, wall, names[number % len(names)], changed_at=wall)
        for number in range(LEDGER.most_items)
    }
    observers = {name: Presence(wall, address, wall, wall) for name in names}
    return ledger_document.written(Ledger(entries=entries, began=wall, observers=observers), wall)
