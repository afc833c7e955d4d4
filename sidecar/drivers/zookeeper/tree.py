"""Decides which paths to watch and to read next, which answers are news, and which changes were missed in between."""

from collections import deque
from itertools import islice

from sidecar.core.bounds import STORE_LIST
from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import ZNodePosition
from sidecar.drivers.shares import WatchedJobs
from sidecar.drivers.zookeeper.persistent import ZNodeEvent
from sidecar.drivers.zookeeper.watch_set import DISCOVERY, Ask, ParentGone, Watched, WatchReport
from sidecar.drivers.zookeeper.zookeeper_session import (
    Absent,
    Answer,
    Children,
    Interrupted,
    Present,
    Question,
    Refused,
    TooManyChildren,
    Value,
)

MOST_CHILDREN = STORE_LIST.most_items
"""A longer list is not read. New children are still reported by the watch."""
_LISTS_OF_JOBS = frozenset({znode_paths.LEADER, znode_paths.JOBS, *znode_paths.JOB_STORES})

_BELOW_JOBS = f"{znode_paths.JOBS}/"
_NOTHING_WANTED = znode_paths.Wanted(frozenset(), frozenset(), frozenset())
_NOTHING = (Absent(), Children(()))
_LONG_LIST = 1_000
"""Children: a longer list that changes while it is read is read again once a second, not at each change."""
_LINGERING_SECONDS = 5.0


class Tree:
    """All paths of one cluster that matter: found by `znode_paths.wanted` from list to list, and by recursive watches.

    With one-shot watches (`persistent` is false), each read sets the next watch, and an absent path is asked whether it EXISTS, because
    only that sets a watch. A path that is no longer wanted stays until a read finds it absent, so that its deletion is reported.
    """

    def __init__(self, jobs: WatchedJobs) -> None:
        """`jobs`: decides which jobs are watched."""
        self.too_long = frozenset[str]()
        """The lists of jobs that are too long to be read."""
        self.jobs = jobs
        self.persistent = True
        self.roots = frozenset[str]()
        """The paths to watch recursively."""
        self.unnotified: str | None = None
        """A path that changed without a watch event: its watch is lost."""
        self.throttled: set[Watched] = set()
        """Contested paths, and long lists that change: read now and then, their changes are counted."""
        self._watched: dict[str, Watched] = {}
        self._always = znode_paths.wanted({})
        self._wanted = _NOTHING_WANTED
        self._queue: deque[Ask] = deque()
        self._after_leaders: list[Ask] = []  # wait for the list of leaders: it decides what their parents count
        self._unread: set[Watched] | None = None
        self._round: list[Watched] = []
        self._gone: deque[tuple[float, Watched]] = deque()

    def read_all(self, *, persistent: bool) -> None:
        """Start over, on a new connection: every answer is news."""
        self.persistent = persistent
        self.unnotified = None
        self._queue.clear()
        self._after_leaders.clear()
        self.throttled.clear()
        self._round.clear()
        self._gone.clear()
        self._wanted = _NOTHING_WANTED
        self._watched = {path: watched.renewed() for path, watched in self._watched.items()}
        self._unread = set(self._watched.values())
        for watched in sorted(self._unread, key=lambda watched: watched.question is not Question.CHILDREN):
            self._ask(watched)
        self._follow_lists()

    def next(self) -> Ask | None:
        return self._queue.popleft() if self._queue else None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def completed(self) -> bool:
        """True if everything has been read since `read_all`; true once, and not while a list of discovery is refused."""
        if self._unread is None or self._unread:
            return False
        self._unread = None
        return True

    # -- watch events --------------------------------------------------------------------------------------------------

    def happened(self, event: ZNodeEvent, path: str, now: float) -> WatchReport | None:
        """Process a watch event. Returns a report if the event suffices; otherwise reads the path, again if a read is in progress."""
        if self.persistent and event in {ZNodeEvent.CREATED, ZNodeEvent.DELETED}:
            self._child_came_or_went(path)
        watched = self._watched.get(path) or self._discover(event, path)
        if watched is None:
            below = self._watched.get(f"{path}/connection_info") if event is ZNodeEvent.DELETED else None
            return WatchReport(below, ParentGone(), None, None) if below else None
        if watched.question is Question.VALUE and event is ZNodeEvent.DELETED:
            return self._deleted(watched, now)
        if event is ZNodeEvent.CREATED:
            watched.births = None
        self._notified(watched)
        self._read(watched)
        return None

    def _child_came_or_went(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if listing := self._watched.get(parent):
            self._notified(listing)
            if znode_paths.is_list(parent):
                self._read(listing)
        if counted := self._watched.get(f"{path}/connection_info"):
            counted.births = None  # its parent is a new node, which counts from zero

    def _discover(self, event: ZNodeEvent, path: str) -> Watched | None:
        """Watch a path that matters although no list has led to it."""
        if not self.persistent or event is ZNodeEvent.DELETED:
            return None
        if znode_paths.is_latch(path):
            self._read(self._watched[znode_paths.LEADER])  # the layout decides where the leaders of jobs are
            return self._add(path, Question.CHILDREN)
        component = znode_paths.component_of(path)
        if component is None or (component.job_id and not self.jobs.came(component.job_id)):
            return None
        watched = self._add(path, Question.VALUE)
        watched.counted = event is ZNodeEvent.CREATED and self._unread is None
        return watched

    def _deleted(self, watched: Watched, now: float) -> WatchReport | None:
        """Report the deletion without a read, which might find the next leader already."""
        if watched.note_churn(now):
            self.throttled.add(watched)
        watched.notified = True
        report = None
        existed = isinstance(watched.state, ZNodePosition) or watched.was_written
        watched.events += 1  # also while throttled, without a report
        if existed and watched not in self.throttled:
            watched.state = Absent()
            report = self._report(watched, Absent())
        if self.persistent:
            self._gone.append((now, watched))
        else:
            self._read(watched)
        return report

    def _notified(self, watched: Watched) -> None:
        watched.events += 1
        watched.notified = True
        if not self.persistent:
            watched.counted = False  # the one-shot watch has fired

    def _read(self, watched: Watched) -> None:
        if watched.reading:
            watched.stale = True
        elif watched not in self.throttled:
            self._ask(watched)

    # -- reading again -------------------------------------------------------------------------------------------------

    def read_refused(self) -> None:
        """Read again what the server has refused: no watch reports when it is allowed. And the lists of jobs, if not all are watched."""
        again = _LISTS_OF_JOBS if self.jobs.left_out or self.too_long else ()
        for watched in self._watched.values():
            if watched.refused or watched.path in again:
                self._read(watched)

    def read_throttled(self) -> None:
        """Read the contested paths."""
        throttled, self.throttled = self.throttled, set()
        for watched in throttled:
            self._read(watched)

    def confirm(self, paths: int, now: float) -> None:
        """Read the next few paths without a watch event, in case a watch is lost. Forget paths that have been absent for a while."""
        while self._gone and self._gone[0][0] + _LINGERING_SECONDS <= now:
            _, watched = self._gone.popleft()
            if watched.state == Absent():
                self._release(watched)
        if not self._round:
            self._round = list(self._watched.values())
        for watched in islice(self._round, paths):
            if not watched.reading and self._watched.get(watched.path) is watched:
                self._read(watched)
        del self._round[:paths]

    # -- answers -------------------------------------------------------------------------------------------------------

    def answered(self, ask: Ask, answer: Answer, now: float) -> WatchReport | None:
        """Process an answer that arrived `now` (monotonic). Returns a report if the answer is news on this connection."""
        watched = ask.watched
        if self._watched.get(watched.path) is not watched or isinstance(answer, Interrupted):
            return None
        if ask.path != watched.path:
            watched.births = answer.births if isinstance(answer, Present) else None
            return None
        if isinstance(answer, Present) and self._counts_children_first(watched):
            if answer.children <= MOST_CHILDREN:
                self._queue.append(Ask(watched, Question.CHILDREN, watched.path))
                return None
            answer = TooManyChildren(answer.children, MOST_CHILDREN)
        watched.reading = False
        watched.refused = isinstance(answer, Refused)
        if watched.stale and isinstance(answer, Children) and len(answer.names) > _LONG_LIST:
            self.throttled.add(watched)
        if watched.path in _LISTS_OF_JOBS:
            answer = self._bounded(watched.path, answer)
        if watched.path == znode_paths.LEADER:
            self._queue.extend(self._after_leaders)
            self._after_leaders.clear()
        report = None if self._only_sets_watch(ask) else self._learn(watched, answer, now)
        self._follow_up(ask, answer)
        return report

    def _bounded(self, path: str, answer: Answer) -> Answer:
        """A list of jobs without those that are not watched."""
        was_too_long, is_too_long = path in self.too_long, isinstance(answer, TooManyChildren)
        if is_too_long:
            self.too_long |= {path}
        if not isinstance(answer, Children | Absent):
            return answer
        self.too_long -= {path}
        if was_too_long and path in DISCOVERY and self._unread is None:
            self._unread = set()  # until the leaders in it are read nobody knows which jobs have none
        names = answer.names if isinstance(answer, Children) else ()
        by_name = {name: job_id for name in names if (job_id := znode_paths.job_of(name))}
        watched = self.jobs.listed(path, by_name.values())
        if isinstance(answer, Absent):
            return answer
        return Children(
            tuple(
                name
                for name in names
                if (by_name[name] in watched if name in by_name else znode_paths.is_leaders_child(name))
            )
        )

    def _only_sets_watch(self, ask: Ask) -> bool:
        """True if nothing is to be learned from the answer: a read has found the path absent, which sets no one-shot watch."""
        return ask.question is Question.EXISTS and not self.persistent

    def _follow_up(self, ask: Ask, answer: Answer) -> None:
        """Continue after an answer: with another read, with a watch for the creation of the path, or not at all."""
        watched = ask.watched
        if watched.stale or isinstance(answer, Present):
            self._read(watched)
        elif not isinstance(answer, Absent):
            return
        elif self.persistent or self._only_sets_watch(ask) or watched.path not in self._wanted:
            self._release(watched)
        else:
            self._ask(watched, Question.EXISTS)

    def _learn(self, watched: Watched, answer: Answer, now: float) -> WatchReport | None:
        if isinstance(answer, Value) and watched.note_value(hash(answer.data), now):
            self.throttled.add(watched)
        if self._unread and not (watched.refused and watched.path in DISCOVERY):
            self._unread.discard(watched)
        previous, state = watched.state, watched.state_in(answer)
        if state != previous:
            if watched.counted and not watched.notified:
                self.unnotified = watched.path
        elif not (isinstance(answer, Absent) and watched.was_written):  # created and deleted since it was absent
            return None
        watched.state = state
        if watched.leads_on and not watched.refused:
            watched.names = watched.names_in(answer)
            self._follow_lists(notified=previous is not TooManyChildren and not isinstance(previous, Refused))
        return self._report(watched, answer)

    def _report(self, watched: Watched, answer: Answer) -> WatchReport:
        births = watched.births if znode_paths.LATCH in self._watched else None
        report = WatchReport(watched, answer, watched.events if watched.counted else None, births)
        watched.events = 0
        watched.notified = False
        # A read sets a one-shot watch only on an existing node. A refused path has no watch.
        watched.counted = not isinstance(answer, Refused) and (self.persistent or not isinstance(answer, Absent))
        return report

    # -- which paths ---------------------------------------------------------------------------------------------------

    def _ask(self, watched: Watched, question: Question | None = None) -> None:
        watched.reading = True
        watched.stale = False
        parent = znode_paths.counted_at(watched.path) if self.persistent else None
        leaders = self._watched.get(znode_paths.LEADER)
        waits = parent is not None and leaders is not None and leaders.state is None and leaders.reading
        queue = self._after_leaders if waits else self._queue
        if parent and watched.births is None:
            queue.append(Ask(watched, Question.EXISTS, parent))
        question = question or (Question.EXISTS if self._counts_children_first(watched) else watched.question)
        queue.append(Ask(watched, question, watched.path))

    def _counts_children_first(self, watched: Watched) -> bool:
        """True if it is right to ask for the length of a list before reading it. Not with one-shot watches: each question would set one."""
        return self.persistent and watched.question is Question.CHILDREN

    def _add(self, path: str, question: Question, *, notified: bool = True) -> Watched:
        """`notified` false: its list could not be read, so the path may have existed for long."""
        watched = self._watched[path] = Watched(path, question)
        if self._unread is not None:
            self._unread.add(watched)
        elif notified and self.persistent and question is Question.VALUE and not path.startswith(_BELOW_JOBS):
            watched.state = Absent()  # its creation would have been notified
            watched.counted = True
        return watched

    def _follow_lists(self, *, notified: bool = True) -> None:
        """Watch the paths that the lists lead to now. `notified`: see `_add`."""
        names = {path: watched.names for path, watched in self._watched.items() if watched.leads_on}
        previous, self._wanted = self._wanted, znode_paths.wanted(names)
        self.roots = frozenset()
        if self.persistent:
            below_jobs = any(path.startswith(_BELOW_JOBS) for path in self._watched)
            self.roots = self._wanted.roots | ({znode_paths.JOBS} if below_jobs else frozenset())
        lists, nodes = self._wanted.lists - previous.lists, self._wanted.nodes - previous.nodes
        for paths, question in ((lists, Question.CHILDREN), (nodes, Question.VALUE)):
            for path in paths - self._watched.keys():
                self._ask(self._add(path, question, notified=notified))
        for watched in [watched for watched in self._watched.values() if watched.path not in self._wanted]:
            if watched.path in DISCOVERY or (watched.state in _NOTHING and self._is_idle(watched)):
                self._forget(watched)

    def _release(self, watched: Watched) -> None:
        """Forget an absent path, unless its creation matters and no recursive watch would report it."""
        wanted = self._always if self.persistent else self._wanted
        if watched.path not in wanted and self._is_idle(watched) and self._watched.get(watched.path) is watched:
            self._forget(watched)

    def _is_idle(self, watched: Watched) -> bool:
        return not watched.reading and watched not in self.throttled

    def _forget(self, watched: Watched) -> None:
        del self._watched[watched.path]
        component = znode_paths.component_of(watched.path)
        if component and component.job_id:
            self.jobs.went(component.job_id)
        self.throttled.discard(watched)
        if self._unread:
            self._unread.discard(watched)
