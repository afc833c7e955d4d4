"""Finds the other observers through the ledger, and asks them over HTTP what they see, while this one sees no leader, or nothing at all.

The ledger is in the store: an observer that is cut off from the store asks those that it knew before.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Final, NoReturn

from msgspec import Meta, MsgspecError
from msgspec.json import Decoder

from sidecar.core.agreement import Opinion
from sidecar.core.alerting.ledger_document import Observers, Presence
from sidecar.core.bounds import OBSERVER
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.flink.leadership import Held
from sidecar.core.observations import PeersAsked
from sidecar.core.policy.policy import ALL_FOUND
from sidecar.core.views.leader_here import ObservationView, disputable
from sidecar.core.views.snapshot import Snapshot
from sidecar.net.rest_client import RestConnection, RestError
from sidecar.runtime.clock import Clock
from sidecar.runtime.threads import ServiceThread, jittered, join_all
from sidecar.sinks.notify.ledger_client import SharedLedger

PATH: Final = "/api/v1/observations"
PUBLISH_SECONDS: Final = 60.0
"""The time between two looks who else is there, after which an observer publishes itself where that is due: far more often than the others
forget it. At first more often, because several sidecars often start together, and each knows those alone that have published before it.
"""
_FIRST_PUBLISH_SECONDS: Final = 5.0
ASK_SECONDS: Final = 5.0
"""The pause between two rounds of questions: an answer counts for six of them."""
ROUND_SECONDS: Final = 2.0
"""The time for all observers of one ledger in one round. Observers of other ledgers are asked after them."""
_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 1.0
_ANSWER: Final = Decoder(Annotated[list[ObservationView], Meta(max_length=OBSERVER.most_items)])

_log = logging.getLogger("sidecar.peers")


class PeerExchange:
    """Publishes this observer in the ledgers, and observes a `PeersAsked` for each cluster that is in dispute."""

    def __init__(
        self, ledgers: Mapping[str, SharedLedger], address: str, snapshot: Callable[[], Snapshot], clock: Clock
    ) -> None:
        """`ledgers` by cluster, as the notifier has them; `address`: where others can ask this observer."""
        self._ledgers = ledgers
        self._address = address
        self._snapshot = snapshot
        self._clock = clock
        self._observer: Callable[[PeersAsked], None] | None = None
        self._peers: dict[str, Observers] = {}
        """The observers by ledger. A ledger that cannot be read any more keeps those that it had."""
        self._leader_seen_at = dict.fromkeys(ledgers, 0)
        self._stopping = threading.Event()
        self._threads = [ServiceThread(self._publish, "presence"), ServiceThread(self._ask, "peers")]

    def start(self, observer: Callable[[PeersAsked], None]) -> None:
        """Start the threads, if observers share a ledger. `observer` is called from one of them, and may block."""
        self._observer = observer
        for thread in self._threads if self._ledgers else ():
            thread.start()

    def stop(self) -> None:
        """End soon. May be called twice, or before `start`."""
        self._stopping.set()
        join_all(self._threads, _STOP_SECONDS)

    def _publish(self) -> None:
        due, pause = dict.fromkeys(self._ledgers, 0.0), dict.fromkeys(self._ledgers, _FIRST_PUBLISH_SECONDS)
        while not self._stopping.wait(_POLL_SECONDS):
            for name in [name for name, at in due.items() if time.monotonic() >= at]:
                if presence := self._presence(name):
                    peers = self._ledgers[name].announce(presence)
                    due[name] = time.monotonic() + jittered(pause[name], 0.8)
                    pause[name] = min(2 * pause[name], PUBLISH_SECONDS)
                    if peers is not None:
                        self._peers[name] = peers

    def _presence(self, ledger: str) -> Presence | None:
        """The observers that are published in a ledger. None: the store cannot be read."""
        snapshot = self._snapshot()
        in_sight = [cluster for cluster in snapshot.state.sharing(ledger) if cluster.is_in_sight]
        if not in_sight:
            return None
        if any(_is_led(cluster) for cluster in in_sight):
            self._leader_seen_at[ledger] = snapshot.at.wall
        return Presence(self._clock().wall, self._address, snapshot.at.wall, self._leader_seen_at[ledger])

    def _ask(self) -> None:
        pause = _POLL_SECONDS
        while not self._stopping.wait(pause):
            pause = _POLL_SECONDS
            clusters = disputable(self._snapshot()) if any(self._peers.values()) else ()
            if clusters:
                self._ask_about(clusters)
                pause = jittered(ASK_SECONDS, 0.8)

    def _ask_about(self, clusters: Collection[str]) -> None:
        for ledger, peers in list(self._peers.items()):
            asked = [name for name in clusters if ledger in {name, ALL_FOUND}]
            if not asked:
                continue
            voting = self._ledgers[ledger].voting(peers)
            opinions: dict[str, list[Opinion]] = {name: [] for name in asked}
            deadline = time.monotonic() + ROUND_SECONDS
            for name, presence in voting.items():
                for view in _answer(name, presence.address, min(OBSERVER.most_seconds, deadline - time.monotonic())):
                    if view.cluster_id in opinions:
                        vacant = tuple(sorted(set(view.vacant)))
                        opinions[view.cluster_id].append(Opinion(name, view.sees, vacant, view.rest_server))
            for name, of_cluster in opinions.items():
                if self._observer and not self._stopping.is_set():
                    self._observer(PeersAsked(self._clock(), name, len(voting), tuple(of_cluster)))


def _is_led(cluster: ClusterState) -> bool:
    return any(isinstance(state.leadership, Held) for name, state in cluster.components.items() if not name.job_id)


def _answer(observer: str, address: str, seconds: float) -> Iterable[ObservationView]:
    """The state of the clusters as the observer sees it. Empty: it does not answer, or is another one than the ledger says."""
    try:
        connection = RestConnection(address, _no_tls)
        try:
            status, content = connection.get(PATH, seconds, OBSERVER.most_bytes)
        finally:
            connection.close()
        if status != 200:
            raise RestError(f"status {status}")
        by_cluster = {view.cluster_id: view for view in _ANSWER.decode(content) if view.observer == observer}
        return by_cluster.values()
    except (RestError, MsgspecError, UnicodeError, RecursionError) as error:
        _log.debug("%s does not say what it sees: %s", observer, error)
        return ()


def _no_tls() -> NoReturn:
    raise RestError("observers answer over plain HTTP")
