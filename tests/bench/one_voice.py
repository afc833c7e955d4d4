"""One voice: `python -m tests.bench.one_voice [FAILOVERS] [SEED]`; ends with 1 where a message was lost, or came twice without saying so.

Three sidecars watch one cluster. At random moments one of them is killed with -9, or frozen for longer than a claim stands; one of the two
receivers answers at random with 200, 500 (with or without keeping the message), 429, a reset, or not at all; ZooKeeper, which keeps
Flink's leaders and the ledger, is killed and started again; the ledger is deleted, made unreadable and closed to all.

Flink does not run: the benchmark writes its znodes. The next failover waits until a running sidecar has observed the leader. No sidecar is
killed while the ledger is closed: one that starts then sends every notification itself (docs/explanation/one-voice.md).
"""

import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.bench.stage import Table, zookeeper
from tests.kit.leaders import Leaders
from tests.kit.one_voice import LEDGER, Verdict, Voices, books, freeze, judge, leads, thaw
from tests.kit.receivers import Mood, Receiver
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import until
from tests.kit.zookeeper_client import connected
from tests.lab.zookeeper import ZooKeeper

_FAILOVERS: Final = 200
_WELL: Final = {Mood.WELL: 1.0}
_MOODY: Final = {
    Mood.WELL: 60.0,
    Mood.BROKEN: 10.0,
    Mood.BROKEN_BUT_KEPT: 6.0,
    Mood.TOO_MANY: 12.0,
    Mood.RESETS: 6.0,
    Mood.HANGS: 6.0,
}
_PACE: Final = (0.2, 3.0)
_KILL_EVERY: Final = (2.0, 15.0)
_AWAY: Final = (0.0, 15.0)
_FROZEN: Final = (12.0, 30.0)  # a claim stands for 10 s
_FREEZES: Final = 0.08
_DRAIN_SECONDS: Final = 300.0
_STEP: Final = 0.05


class Chaos:
    """Kills and freezes sidecars, now and then all of them; `act` as often as possible."""

    def __init__(self, sidecars: Sequence[Sidecar], moments: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self.paused = False
        self._sidecars = sidecars
        self._moments = moments
        self._back: list[tuple[float, Sidecar, Callable[[], None]]] = []
        self._next = time.monotonic() + moments.uniform(*_KILL_EVERY)

    def at_work(self) -> list[Sidecar]:
        """Those that run."""
        away = [sidecar for _, sidecar, _ in self._back]
        return [sidecar for sidecar in self._sidecars if sidecar not in away]

    def act(self) -> None:
        now = time.monotonic()
        self._bring_back(now)
        if self.paused or now < self._next:
            return
        self._next = now + self._moments.uniform(*_KILL_EVERY)
        if not self.at_work():
            return
        victim = self._moments.choice(self.at_work())
        if self._moments.random() < _FREEZES:
            freeze(victim)
            self.done["freezes"] += 1
            self._back.append((now + self._moments.uniform(*_FROZEN), victim, lambda: thaw(victim)))
        else:
            victim.kill()
            self.done["kills -9"] += 1
            self._back.append((now + self._moments.uniform(*_AWAY), victim, victim.start))

    def end(self) -> None:
        """Everybody is back."""
        self._bring_back(float("inf"))
        self.paused = True

    def _bring_back(self, now: float) -> None:
        for each in [each for each in self._back if each[0] <= now]:
            self._back.remove(each)
            each[2]()


class Play:
    """The failovers, and what is done to the ledger meanwhile."""

    def __init__(self, server: ZooKeeper, folder: Path, failovers: int, moments: random.Random) -> None:
        self.server = server
        self.moments = moments
        self.failovers = failovers
        self.receivers = [Receiver(random.Random(moments.random()), moods) for moods in (_WELL, _MOODY)]
        for receiver in self.receivers:
            receiver.start()
        self.voices = Voices(folder, server.address, self.receivers)
        self.leaders = Leaders(server.address)
        self.ledger_bytes = 0
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        self.leaders.start()
        self.voices.start()
        self.chaos = Chaos(self.voices.sidecars, self.moments)
        acts = self._acts()
        for number in range(1, self.failovers + 1):
            self._await_seen()
            self.leaders.fail_over()
            self._measure()
            if number in acts:
                self.done[acts[number].__name__.strip("_").replace("_", " ")] += 1
                acts[number]()
            self._pass(self.moments.uniform(*_PACE))
            if number % 10 == 0:
                self._report(number)
        self._settle()

    def _report(self, number: int) -> None:
        """How far it is, for who waits."""
        verdicts = [judge(receiver.arrivals, {}) for receiver in self.receivers]
        kept, wrong = [len(verdict.messages) for verdict in verdicts], [len(verdict.unlabelled) for verdict in verdicts]
        print(f"{number} failovers, messages {kept}, not labelled {wrong}", file=sys.stderr, flush=True)

    def _acts(self) -> dict[int, Callable[[], None]]:
        """By the failover behind which they are done, spread over all of them."""
        acts = [
            self._short_restart,
            self._ledger_deleted,
            self._long_restart,
            self._ledger_garbled,
            self._short_restart,
            self._ledger_closed,
        ]
        step = max(self.failovers // (2 * len(acts)), 1)
        return {step * place: act for place, act in enumerate([*acts, *acts], start=1) if step * place < self.failovers}

    def _short_restart(self) -> None:
        self._restart(self.moments.uniform(0.5, 5.0))

    def _long_restart(self) -> None:
        """Nobody waits for the ledger for so long."""
        self._restart(self.moments.uniform(20.0, 30.0))

    def _restart(self, seconds: float) -> None:
        self._await_seen()
        self._pass(self.moments.uniform(0.0, 1.5))
        self.server.kill()
        self._pass(seconds)
        self.server.start()
        until(lambda: bool(self.leaders.client.connected), 60)

    def _ledger_deleted(self) -> None:
        self._pass(self.moments.uniform(0.0, 2.0))
        with suppress(NoNodeError):
            self.leaders.client.delete(LEDGER)

    def _ledger_garbled(self) -> None:
        self._pass(self.moments.uniform(0.0, 2.0))
        with suppress(NoNodeError):
            self.leaders.client.set(LEDGER, self.moments.randbytes(200))

    def _ledger_closed(self) -> None:
        """It belongs to somebody else for a while. Everybody has used it before."""
        self.chaos.end()
        for _ in range(2):
            self._await_seen()
            self._pass(8)
            self.leaders.fail_over()
        with _somebody(self.server.address) as client:
            self._pass(self.moments.uniform(0.0, 2.0))
            client.set_acls(LEDGER, [make_digest_acl("somebody", "else", all=True)])
            for _ in range(3):
                self._await_seen()
                self.leaders.fail_over()
                self._pass(10)
            client.set_acls(LEDGER, OPEN_ACL_UNSAFE)
        self._pass(5)
        self.chaos.paused = False

    def _await_seen(self) -> None:
        """What nobody saw, nobody can report."""
        deadline = time.monotonic() + 120
        while not any(leads(sidecar, self.leaders.present) for sidecar in self.chaos.at_work()):
            if not self.leaders.lead():  # its session ended with an outage of ZooKeeper
                self.done["leaders that lost their session"] += 1
                self.leaders.fail_over()
            if time.monotonic() > deadline:
                logs = "\n".join(sidecar.log.read_text()[-2000:] for sidecar in self.voices.sidecars)
                raise AssertionError(f"nobody sees {self.leaders.present}: {logs}")
            self._pass(_STEP)

    def _pass(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.chaos.act()
            time.sleep(_STEP)

    def _measure(self) -> None:
        with suppress(NoNodeError):
            self.ledger_bytes = max(self.ledger_bytes, len(self.leaders.client.get(LEDGER)[0]))

    def _settle(self) -> None:
        """Everybody is back, all receivers are well, and what waits is sent."""
        self.chaos.end()
        for receiver in self.receivers:
            receiver.moods = _WELL
        for sidecar in self.voices.sidecars:
            sidecar.wait_ready()
        time.sleep(5)  # what is seen is reported after group_wait and group_interval
        assert until(self.voices.has_sent_all, _DRAIN_SECONDS, 0.5), "the outboxes do not get empty"
        for sidecar in self.voices.sidecars:
            assert sidecar.stop() == 0
        self._measure()

    def stop(self) -> None:
        self.voices.kill()
        self.leaders.stop()
        for receiver in self.receivers:
            receiver.stop()


def _somebody(address: str) -> AbstractContextManager[KazooClient]:
    """Who may do what nobody else may."""
    return connected(address, auth_data=[("digest", "somebody:else")])


def main(failovers: int, seed: int) -> int:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the server goes away on purpose
    began = time.monotonic()
    with zookeeper() as (server, folder):
        play = Play(server, folder, failovers, random.Random(seed))
        try:
            play.run()
        finally:
            play.stop()
        since = dict(list(play.leaders.since.items())[1:])  # the first leader is no failover
        verdicts = [judge(receiver.arrivals, since) for receiver in play.receivers]
        _print(play, verdicts)
        wrong = any([*(_complaints(play, verdicts))])
    print(f"seed {seed}, {time.monotonic() - began:.0f} s")
    return int(wrong)


def _print(play: Play, verdicts: Sequence[Verdict]) -> None:
    table = Table(
        *("destination", "failovers", "messages", "lost", "duplicates, labelled", "not labelled", "with news too"),
        *("late p50, s", "p95, s", "max, s", "by a, b, c"),
    )
    for name, verdict in zip(("well", "moody"), verdicts, strict=True):
        late, by = verdict.delays, Counter(message.observer for message in verdict.messages)
        table.row(
            *(name, len(play.leaders.since) - 1, len(verdict.messages), len(verdict.lost)),
            *(len(verdict.labelled), len(verdict.unlabelled), verdict.overlapping),
            *(f"{late[int(len(late) * part)]:.1f}" for part in (0.5, 0.95)),
            f"{late[-1]:.1f}",
            ", ".join(str(by[observer]) for observer in "abc"),
        )
    table.end()
    table = Table(
        "observer", "queued", "delivered", "already told", "superseded", "gave up", "fail-opens", "take-overs"
    )
    for name, sidecar in zip("abc", play.voices.sidecars, strict=True):
        found = books(sidecar)
        table.row(name, *found[:-1], sidecar.log.read_text().count(": taking over a notification"))
    table.end()
    for what in (play.chaos.done, play.done, play.receivers[1].answered):
        print(", ".join(f"{name}: {count}" for name, count in sorted(what.items())))
    print(f"the ledger had {play.ledger_bytes} bytes at most")


def _complaints(play: Play, verdicts: Sequence[Verdict]) -> Iterator[bool]:
    """Each is printed."""
    for name, verdict in zip(("well", "moody"), verdicts, strict=True):
        for leader in verdict.lost:
            print(f"LOST at {name}: {leader}")
            yield True
        for message in verdict.unlabelled:
            print(f"NOT LABELLED at {name}: {', '.join(sorted(message.subjects))}")
            yield True
            for other in verdict.messages:
                if other.subjects & message.subjects:
                    print(f"--- {time.strftime('%T', time.gmtime(other.at))}\n{other.text}\n")
    for sidecar in play.voices.sidecars:
        if left := books(sidecar).open:
            print(f"{sidecar.folder.name}: of {len(left)} deliveries it is not known once what became of them: {left}")
            yield True


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    sys.exit(
        main(
            arguments[0] if arguments else _FAILOVERS,
            arguments[1] if len(arguments) > 1 else random.randrange(2**32),
        )
    )
