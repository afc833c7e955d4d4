"""A ZooKeeper ensemble of three on this machine, whose members can be killed, frozen and left behind, and a Flink that writes to it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from sidecar.core.flink.leadership import ComponentId
from tests.kit.cluster import ALL_FOUR, JobManager
from tests.kit.fake_flink import Flink
from tests.kit.four_letter_words import says
from tests.kit.java_serialization import connection_info
from tests.kit.relay import Wire
from tests.kit.waiting import until
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper

LEADER, FOLLOWER, READ_ONLY = "leader", "follower", "read-only"
_NUMBERS = (1, 2, 3)
_SETTLE_SECONDS = 60.0

# A member and its leader that have not heard of each other for four ticks, four seconds, part.
_CONFIG = """\
initLimit=10
syncLimit=4
localSessionsEnabled={alone}
localSessionsUpgradingEnabled={alone}
{servers}
"""


class Member(ZooKeeper):
    """One server of an ensemble. It serves, and so has started, when a majority of them is there to elect a leader."""

    def __init__(self, number: int, servers: str, folder: Path, home: Path, java: Path) -> None:
        """`number` is its id among `servers`."""
        super().__init__(folder, home, java)
        self.name = f"ZooKeeper {number}"
        self.serves_alone = False
        """Whether, from its next start, it opens sessions without asking the leader, and serves read-only clients without a quorum."""
        self.servers = servers
        """The ensemble as it sees it from its next start, in zoo.cfg's words."""
        self._number = number

    def build_command(self) -> Sequence[str]:
        java, *arguments = super().build_command()
        alone = str(self.serves_alone).lower()
        with (self._folder / "zoo.cfg").open("a") as config:
            config.write(_CONFIG.format(servers=self.servers, alone=alone))
        (self._folder / "data" / "myid").write_text(str(self._number))
        return [java, f"-Dreadonlymode.enabled={alone}", *arguments]

    def mode(self) -> str:
        """What it says that it is: LEADER, FOLLOWER or READ_ONLY; nothing while it serves nobody."""
        match = re.search(r"Mode: (\S+)", self.says("srvr"))
        return match[1] if match else ""

    def says(self, word: str) -> str:
        """Its answer to a four-letter word; nothing when it is dead or frozen."""
        return says(self, word)

    def read_as_it_is(self, path: str) -> bytes:
        """What it answers to a client that puts up with a server that has no quorum or lags behind."""
        with connected(self.address, read_only=True) as client:
            data: bytes = client.get(path)[0]
        return data


class Ensemble:
    """Three members, each with its data in a folder of its own below `folder`."""

    def __init__(self, folder: Path, home: Path, java: Path) -> None:
        self._as_leaders = {n: f"127.0.0.1:{free_port()}" for n in _NUMBERS}
        self._in_elections = {n: free_port() for n in _NUMBERS}
        servers = self._servers(self._as_leaders)
        self.members = tuple(Member(n, servers, folder / f"zookeeper-{n}", home, java) for n in _NUMBERS)
        self._wires: list[Wire] = []

    @property
    def reachable(self) -> str:
        """The addresses of the members that are neither dead nor frozen, as a quorum."""
        return quorum(*(member for member in self.members if member.running and not member.paused))

    def start(self) -> None:
        """Bring up what does not run; all three serve when this returns."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.await_ready()
        _await(lambda: sorted(member.mode() for member in self.members) == [FOLLOWER, FOLLOWER, LEADER], self)

    def heal(self) -> None:
        """Have it as it was in the beginning, whatever was done to it."""
        for member in self.members:
            if member.paused or member.serves_alone:
                member.kill()
            member.serves_alone = False
            member.servers = self._servers(self._as_leaders)
        self._close_wires()
        self.start()

    def kill(self) -> None:
        for member in self.members:
            member.kill()
        self._close_wires()

    def leave_first_behind(self) -> Member:
        """Make the first member a follower that serves alone, and that hears nothing more of its leader, until it looks for it anew."""
        first = self.members[0]
        first.kill()
        self.leader()
        to_leaders = {n: Wire(address) for n, address in self._as_leaders.items() if n != 1}
        self._wires += to_leaders.values()
        first.servers = self._servers(self._as_leaders | {n: wire.address for n, wire in to_leaders.items()})
        first.serves_alone = True
        first.start()
        for wire in self._wires:
            wire.fall_silent()
            wire.speak_again()
        return first

    def leader(self) -> Member:
        """Who leads it now; waits while nobody does."""
        _await(lambda: LEADER in (member.mode() for member in self._alive()), self)
        return next(member for member in self._alive() if member.mode() == LEADER)

    def followers(self) -> list[Member]:
        """The members that are alive and do not lead."""
        leader = self.leader()
        return [member for member in self._alive() if member is not leader]

    def sessions(self) -> set[str]:
        """Everybody's sessions, as the leader knows them."""
        return set(re.findall(r"0x[0-9a-f]+", self.leader().says("dump").partition("ephemeral nodes dump")[0]))

    def _servers(self, as_leaders: Mapping[int, str]) -> str:
        return "\n".join(f"server.{n}={as_leaders[n]}:{self._in_elections[n]}" for n in _NUMBERS)

    def _close_wires(self) -> None:
        for wire in self._wires:
            wire.close()
        self._wires.clear()

    def _alive(self) -> list[Member]:
        return [member for member in self.members if member.running and not member.paused]


def quorum(*servers: ZooKeeper | Wire) -> str:
    """The addresses of `servers`, in this order."""
    return ",".join(server.address for server in servers)


def _await(condition: Callable[[], bool], ensemble: Ensemble) -> None:
    if not until(condition, _SETTLE_SECONDS, 0.05):
        modes = {member.name: member.mode() or "not serving" for member in ensemble.members}
        raise AssertionError(f"the ensemble does not settle: {modes}")


# -- what Flink does ---------------------------------------------------------------------------------------------------


def path(component: ComponentId) -> str:
    """Where the leader of `component` stands, below the namespace."""
    return ZNodes().path(component)


def info(leader: JobManager, component: ComponentId) -> bytes:
    """What `leader` publishes there."""
    leads = leader.leads(component)
    return connection_info(leads.address, leads.session_id)


def elect(ensemble: Ensemble, namespace: str, leader: JobManager, *components: ComponentId) -> None:
    """`leader` publishes itself, for all four components unless given otherwise. It stays when this connection goes."""
    with writer(ensemble.reachable) as client:
        flink = Flink(ZNodes(writer=ZooKeeperWriter(client, namespace, ephemeral=False)))
        for component in components or ALL_FOUR:
            flink.publish_all(leader, component)
            if component.job_id:
                flink.submit(component.job_id)


@contextmanager
def writer(hosts: str) -> Iterator[KazooClient]:
    """A client that waits for an election to end, and so does its `retry`."""
    patience = KazooRetry(max_tries=-1, max_delay=0.5, deadline=_SETTLE_SECONDS)
    with connected(
        hosts, seconds=_SETTLE_SECONDS, timeout=20, connection_retry=patience, command_retry=patience.copy()
    ) as client:
        yield client
