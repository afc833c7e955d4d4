"""What was reported of a fault, held against what happened."""

import time
from collections.abc import Iterable

from tests.bench.scene import DISPATCHER, Fault, Scene, WatchLine

_JITTER_SECONDS = 0.25
"""Between what this process reads of etcd and what others read."""
_STALE_SECONDS = 2.0
_BELIEVED_SECONDS = 17.0
"""How long a leader may be reported after its death: its lease, and 2 s."""


class Verdict:
    """Of all that was reported between the beginning of a fault and now. Times are in seconds."""

    def __init__(self, scene: Scene, fault: Fault) -> None:
        self._scene = scene
        self._truth = scene.truth
        self._fault = fault
        self._now = time.monotonic()
        self._written = self._truth.written(fault.at)
        self.lines = [line for line in scene.watch_lines() if line.at >= fault.at]

    @property
    def vacant(self) -> list[WatchLine]:
        """The lines that say that nobody leads."""
        return [line for line in self.lines if line.after is None and line.kind != "OBSCURED"]

    @property
    def obscured(self) -> list[WatchLine]:
        return [line for line in self.lines if line.kind == "OBSCURED"]

    def after(self, lines: Iterable[WatchLine]) -> list[float]:
        """How long after the fault they were reported."""
        return [line.at - self._fault.at for line in lines]

    def written_after(self) -> list[float]:
        """How long after the fault each new leader wrote itself."""
        return [at - self._fault.at for at in self._written.values()]

    def false(self) -> list[str]:
        """What was reported and was not so."""
        return [
            f"FALSE: {line.at - self._fault.at:.2f} s after the fault: {line}"
            for line in self.lines
            if not self._is_true(line)
        ]

    def missed(self) -> list[str]:
        """Sessions that were written and not reported, and where what was reported last is not how it stands."""
        sessions = {(line.who, line.after) for line in self.lines}
        misses = [f"MISSED: session {key[1]} of {key[0]}" for key in self._written if key not in sessions]
        last = {line.who: line.after for line in self._scene.watch_lines()}
        for who in self._scene.everybody():
            value = self._truth.led(who, self._now)
            lives = value is not None and self._scene.absent_since(value.address, self._now) is None
            stands = value.session if value is not None and lives else None
            if last.get(who) != stands:
                misses.append(f"MISSED: {who} has {stands}, last reported was {last.get(who)}")
        return misses

    def lost(self) -> list[float]:
        """Of each leader whose process ended or froze: after how long that was reported. Where nobody could see, since one could."""
        delays = []
        for who, value in self._fault.led.items():
            begins = (begin for begin, _ in self._scene.absences(value.address))
            died = next((begin for begin in begins if begin >= self._fault.at), None)
            line = next((line for line in self.vacant if line.who == who), None)
            if died is not None and line is not None:
                delays.append(line.at - max(died, self._fault.back_at or 0.0))
        return delays

    def behind(self) -> list[float]:
        """How long behind the write each new leader was reported."""
        return [line.at - at for line in self.lines if line.after and (at := self._written.get((line.who, line.after)))]

    def outcome(self) -> str:
        """In a few words."""
        fault, scene = self._fault, self._scene
        value, before = self._truth.led(DISPATCHER, self._now), fault.led[DISPATCHER]
        words = [f"it was back after {fault.back_at - fault.at:.1f} s"] if fault.back_at else []
        leaders = {scene.process(each.address) for who in fault.led if (each := self._truth.led(who, self._now))}
        if value is None or scene.absent_since(value.address, self._now) is not None:
            words.append("nobody leads")
        elif value.session == before.session:
            words.append("the same leader goes on")
        elif scene.process(value.address) == scene.process(before.address):
            words.append("the same process leads with a new session")
        else:
            words.append("the other JobManager leads")
        words += ["the leaders are split"] * (len(leaders) > 1)
        ended = fault.jobmanagers - len(scene.running())
        words += [f"{ended} of {fault.jobmanagers} JobManagers ended"] * (ended > 0)
        return ", ".join(words)

    def _is_true(self, line: WatchLine) -> bool:
        fault = self._fault
        until = line.at + _JITTER_SECONDS
        if line.kind == "OBSCURED":
            return fault.back_at is not None and line.at <= fault.back_at
        if line.kind == "RETIRED":
            return line.who[1] is not None and not self._truth.keeps_job(line.who[1], until)
        if line.after is None:
            moments = self._moments(line.at - _JITTER_SECONDS, until)
            return not all(self._leads(line, moment) for moment in moments)
        # What was written as the API server went, it reports when it is back.
        since = (line.at if fault.back_at is None else fault.at) - _STALE_SECONDS
        values = (self._truth.value(line.who, moment) for moment in self._moments(since, until))
        value = next((value for value in values if value and value.session == line.after), None)
        if value is None:
            return False
        died = self._scene.absent_since(value.address, line.at)
        return died is None or line.at - max(died, fault.back_at or 0.0) <= _BELIEVED_SECONDS

    def _leads(self, line: WatchLine, moment: float) -> bool:
        """Whether the leader that is reported to lead no longer lives, and has the lease under which it wrote itself."""
        value = self._truth.led(line.who, moment)
        same = value is not None and line.before in {None, value.session}
        return value is not None and same and self._scene.absent_since(value.address, line.at) is None

    def _moments(self, begin: float, end: float) -> list[float]:
        """In which everything stood that stood from `begin` to `end`."""
        return [begin, *(stood.at for stood in list(self._truth.history) if begin < stood.at <= end)]
