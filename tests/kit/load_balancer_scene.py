"""Two real JobManagers, a sidecar beside each, HAProxy before them, and clients that ask it all the time."""

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat

from sidecar.core.flink.leadership import LeaderInformation, decode_connection_info
from sidecar.core.pods import host_of
from tests.kit.haproxy import SERVED_BY, HAProxy
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.kit.zookeeper_client import connected
from tests.lab.flink import Lab
from tests.lab.managers import JobManager
from tests.lab.processes import free_port
from tests.lab.settings import CLUSTER_ID, PATH_ROOT

PERIOD: Final = 0.02
"""Seconds from one request to the next one."""
_ANSWER_SECONDS: Final = 0.5
_CHECK_SECONDS: Final = 1.5
"""More than HAProxy's interval, 1 s."""
_LEADER: Final = f"{PATH_ROOT}/{CLUSTER_ID}/leader/dispatcher/connection_info"
_LATCH: Final = f"{PATH_ROOT}/{CLUSTER_ID}/leader/latch"


class Answer(NamedTuple):
    """An answer to a client. Times in seconds since the epoch."""

    sent: float
    received: float
    server: str | None
    """The JobManager that answered; None: HAProxy itself, or nobody."""
    ok: bool


class Term(NamedTuple):
    """The time of one leader, or of none."""

    at: float
    """When it began, in seconds since the epoch: when the leader wrote itself, or when it was seen to be gone."""
    host: str | None


class Clients(threading.Thread):
    """One request after the other, each on a connection of its own."""

    def __init__(self, address: str) -> None:
        super().__init__(name="clients", daemon=True)
        self.answers: list[Answer] = []
        self._address = urlsplit(address).netloc
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(PERIOD):
            self.answers.append(self._ask())

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _ask(self) -> Answer:
        connection = http.client.HTTPConnection(self._address, timeout=_ANSWER_SECONDS)
        sent, server, ok = time.time(), None, False
        try:
            connection.request("GET", "/overview")
            answer = connection.getresponse()
            answer.read()
            server, ok = answer.getheader(SERVED_BY), answer.status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        return Answer(sent, time.time(), server, ok)


class History:
    """Who led, by the store."""

    def __init__(self, client: KazooClient) -> None:
        self.terms: list[Term] = []
        self._client = client
        client.DataWatch(_LEADER, self._changed)

    def contenders(self) -> int:
        return len(self._client.get_children(_LATCH))

    def leaders(self, begin: float, end: float) -> set[str | None]:
        """All that led at any time in between."""
        terms = [*self.terms]
        last = max((place for place, term in enumerate(terms) if term.at <= begin), default=0)
        return {term.host for term in terms[last:] if term.at <= end}

    def _changed(self, data: bytes | None, stat: ZnodeStat | None) -> None:
        leader = decode_connection_info(data) if data else None
        if stat and isinstance(leader, LeaderInformation):
            self.terms.append(Term(stat.mtime / 1000, host_of(leader.address)))
        else:
            self.terms.append(Term(time.time(), None))


def wrong_answers(answers: Sequence[Answer], history: History) -> list[Answer]:
    """The answers of JobManagers that did not lead at any time between request and answer."""
    return [
        answer
        for answer in answers
        if answer.server and answer.server not in history.leaders(answer.sent, answer.received)
    ]


def seconds_of(wrong: Sequence[Answer]) -> float:
    """How long a client got such answers."""
    return sum(answer.received - answer.sent + PERIOD for answer in wrong)


class LoadBalancerScene:
    """All of it. `following` are the clients of an HAProxy that asks /leader, `simple` those of one that only asks Flink."""

    def __init__(self, lab: Lab, history: History, sidecars: Sequence[Sidecar], folder: Path, stack: ExitStack) -> None:
        self.lab = lab
        self.history = history
        self.sidecars = {sidecar.folder.name: sidecar for sidecar in sidecars}
        servers = {manager.name: f"{manager.ip_address}:{manager.rest_port}" for manager in lab.jobmanagers}
        self.following, self.simple = (
            self._clients(HAProxy(folder / name, servers, sidecars[0].port, asks_sidecar=name == "leader"), stack)
            for name in ("leader", "any")
        )

    def pair(self) -> tuple[JobManager, JobManager]:
        """The leader and the standby, as soon as both are there and the clients get answers of the leader."""
        leader = self.lab.wait_for_leader()
        [standby] = [manager for manager in self.lab.jobmanagers if manager is not leader]
        wait_for("the standby", lambda: standby.running and standby.is_ready() and self.history.contenders() == 2)
        wait_for("the leader's answers, and no others", lambda: self._answers_alone(leader.name))
        wait_for("the standby's sidecar", lambda: self.standby_status(standby) == http.HTTPStatus.OK)
        return leader, standby

    def fail_over(self, remove: Callable[[JobManager], None]) -> "Failover":
        """Remove the leader, and wait until its successor answers the clients; then bring the old one back as the standby."""
        leader, standby = self.pair()
        began = time.time()
        remove(leader)
        term = wait_for("the next leader", lambda: self._term_of(standby.name, began))
        first = wait_for("its answer", lambda: self._first(standby.name, term.at))
        leader.resume()
        wait_for("the old leader to step down or end", lambda: not leader.running or self.history.contenders() == 2)
        leader.start()
        self.pair()
        return Failover(began, term.at, first.received, time.time())

    def standby_status(self, jobmanager: JobManager) -> int:
        return self.sidecars[jobmanager.name].get("/standby?component=dispatcher")[0]

    def _clients(self, proxy: HAProxy, stack: ExitStack) -> Clients:
        stack.callback(proxy.kill)
        proxy.start()
        clients = Clients(proxy.address)
        clients.start()
        stack.callback(clients.stop)
        return clients

    def _answers_alone(self, server: str) -> bool:
        """Whether all answers since HAProxy's last check of each server are of this one: when it starts, it takes all for up."""
        checked = time.time() - _CHECK_SECONDS
        recent = [answer.server for answer in [*self.following.answers] if answer.sent >= checked]
        answers = self.following.answers
        return bool(answers) and answers[0].sent < checked and {*recent} == {server}

    def _term_of(self, host: str, since: float) -> Term | None:
        return next((term for term in [*self.history.terms] if term.host == host and term.at >= since), None)

    def _first(self, server: str, since: float) -> Answer | None:
        answers = [*self.following.answers]
        return next(
            (answer for answer in answers if answer.ok and answer.server == server and answer.received >= since), None
        )


class Failover(NamedTuple):
    """Times of one failover, in seconds since the epoch."""

    began: float
    written_at: float
    """When the next leader wrote itself into the store."""
    answered_at: float
    """Its first answer to a client."""
    ended: float
    """Both JobManagers are there again."""


@contextmanager
def load_balancer_scene(folder: Path) -> Iterator[LoadBalancerScene]:
    """Two JobManagers that serve; nothing of it is left running."""
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(folder / "lab", named_hosts=True))
        lab.start()
        client = stack.enter_context(connected(lab.zookeeper.address))
        port = free_port()
        sidecars = [_sidecar(lab, manager, folder / "sidecars", port) for manager in lab.jobmanagers]
        for sidecar in sidecars:
            stack.callback(sidecar.kill)
            sidecar.start()
        for sidecar in sidecars:
            sidecar.wait_ready()
        yield LoadBalancerScene(lab, History(client), sidecars, folder / "haproxy", stack)


def _sidecar(lab: Lab, jobmanager: JobManager, folder: Path, port: int) -> Sidecar:
    """The sidecar beside a JobManager. All have the same port, as in their pods."""
    cluster = f"flink_conf_dir: {lab.conf_dir}"
    address = f"{jobmanager.ip_address}:{port}"
    sidecar = Sidecar(folder / jobmanager.name, cluster, [], observer=jobmanager.name, address=address)
    sidecar.environment = {"POD_NAME": jobmanager.name, "POD_IP": jobmanager.ip_address}
    return sidecar
