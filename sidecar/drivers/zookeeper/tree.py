"""Which paths are watched, which of them is to be read next, what of the answers was news, and what was missed between them."""

from collections import deque
from itertools import islice

from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import ZNodePosition
from sidecar.drivers.zookeeper.persistent import Event
from sidecar.drivers.zookeeper.session import (
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
from sidecar.drivers.zookeeper.watch_set import Ask, PlaceGone, Watched, WatchReport

MOST_CHILDREN = 50_000
"""A longer list is not read: anybody may make it as long as they like. What comes to be below it is heard all the same."""

_DISCOVERY = frozenset({znode_paths.LEADER, znode_paths.JOBS})
"""Without these lists nobody knows which leaders there are."""

_NOTHING_WANTED = znode_paths.Wanted(frozenset(), frozenset(), frozenset())
_NOTHING = (Absent(), Children(()))

_LINGERING_SECONDS = 5.0
_UNREST = 100
_UNREST_SECONDS = 10.0
_RETURN_WEIGHS = 10
_VALUES_REMEMBERED = 3


class Tree:
    """All paths of one cluster that matter, as `layout.wanted` finds them from list to list and as recursive watches tell of new ones.

    With one-shot watches (`persistent` is false), each read leaves the next watch, and a path that is absent is asked whether it EXISTS,
    because only that leaves a watch on it. A path that is no longer wanted stays until a read finds it absent, so that its end is told.
    """

    def __init__(self) -> None:
        self.persistent = True
        self.roots = frozenset[str]()
        """Below which paths to watch."""
        self.deaf_at: str | None = None
        """A path that changed without a word: its watch is gone."""
        self.resting: set[Watched] = set()
        self._watched: dict[str, Watched] = {}
        self._always = znode_paths.wanted({})
        self._wanted = _NOTHING_WANTED
        self._queue: deque[Ask] = deque()
        self._behind_the_list: list[Ask] = []  # whether a parent counts its leaders alone, the list of leaders tells
        self._unread: set[Watched] | None = None
        self._round: list[Watched] = []
        self._gone: deque[tuple[float, Watched]] = deque()

    def read_all(self, *, persistent: bool) -> None:
        """Begin again, on a new connection: nothing is under way, every answer will be news."""
        self.persistent = persistent
        self.deaf_at = None
        self._queue.clear()
        self._behind_the_list.clear()
        self.resting.clear()
        self._round.clear()
        self._gone.clear()
        self._wanted = _NOTHING_WANTED
        self._unread = set(self._watched.values())
        for watched in sorted(self._unread, key=lambda watched: watched.question is not Question.CHILDREN):
            watched.forget()
            self._ask(watched)
        self._follow_lists()

    def next(self) -> Ask | None:
        """What to ask now, if anything."""
        return self._queue.popleft() if self._queue else None

    @property
    def waiting(self) -> int:
        """How many questions are to be asked."""
        return len(self._queue)

    @property
    def is_complete(self) -> bool:
        """Whether everything has been read since `read_all`, and `completed` has said so."""
        return self._unread is None

    def completed(self) -> bool:
        """Whether everything has been read since `read_all`; true once. A list of discovery that is refused keeps it from being so."""
        if self._unread is None or self._unread:
            return False
        self._unread = None
        return True

    # -- what watches tell ---------------------------------------------------------------------------------------------

    def happened(self, event: Event, path: str, now: float) -> WatchReport | None:
        """Something happened to `path`: news if that says it all, else the path is read, and once more if it is being read."""
        if self.persistent and event in {Event.CREATED, Event.DELETED}:
            self._child_came_or_went(path)
        watched = self._watched.get(path) or self._discover(event, path)
        if watched is None:
            below = self._watched.get(f"{path}/connection_info") if event is Event.DELETED else None
            return WatchReport(below, PlaceGone(), None, None) if below else None
        if watched.question is Question.VALUE and event is Event.DELETED:
            return self._deleted(watched, now)
        if event is Event.CREATED:
            watched.births = None
        self._heard(watched)
        self._read(watched)
        return None

    def _child_came_or_went(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if listing := self._watched.get(parent):
            self._heard(listing)
            if znode_paths.is_list(parent):
                self._read(listing)
        if counted := self._watched.get(f"{path}/connection_info"):
            counted.births = None  # its parent is another one, which counts from the beginning

    def _discover(self, event: Event, path: str) -> Watched | None:
        """A path that matters and that no list has led to."""
        if not self.persistent or event is Event.DELETED:
            return None
        if znode_paths.is_latch(path):
            self._read(self._watched[znode_paths.LEADER])  # the layout decides where jobs have their leaders
            return self._add(path, Question.CHILDREN)
        if znode_paths.component_of(path) is None:
            return None
        watched = self._add(path, Question.VALUE)
        watched.counted = event is Event.CREATED and self._unread is None
        return watched

    def _deleted(self, watched: Watched, now: float) -> WatchReport | None:
        """The deletion is told as it is: when it can be read, the next leader may stand there already, and nobody would know of it."""
        self._note_unrest(watched, now, 1)
        watched.heard = True
        told = None
        stood = isinstance(watched.seen, ZNodePosition) or (watched.counted and watched.events)
        watched.events += 1  # also while it rests, when nobody is told of it
        if stood and not watched.resting:
            watched.seen = Absent()
            told = self._told(watched, Absent())
        if self.persistent:
            self._gone.append((now, watched))
        else:
            self._read(watched)
        return told

    def _heard(self, watched: Watched) -> None:
        watched.events += 1
        watched.heard = True
        if not self.persistent:
            watched.counted = False  # the watch is used up

    def _read(self, watched: Watched) -> None:
        if watched.reading:
            watched.stale = True
        elif not watched.resting:
            self._ask(watched)

    # -- reading again -------------------------------------------------------------------------------------------------

    def read_refused(self) -> None:
        """Try again what the server would not say: no watch tells of that."""
        for watched in self._watched.values():
            if watched.refused:
                self._read(watched)

    def wake(self) -> None:
        """Read what is contested: what has become of it?"""
        resting, self.resting = self.resting, set()
        for watched in resting:
            watched.resting = False
            self._read(watched)

    def confirm(self, paths: int, now: float) -> None:
        """Read the next few paths although nothing was heard of them: silence is not health. Let go of what has been gone for a while."""
        while self._gone and self._gone[0][0] + _LINGERING_SECONDS <= now:
            _, watched = self._gone.popleft()
            if watched.seen == Absent():
                self._release(watched)
        if not self._round:
            self._round = list(self._watched.values())
        for watched in islice(self._round, paths):
            if not watched.reading and self._watched.get(watched.path) is watched:
                self._read(watched)
        del self._round[:paths]

    # -- answers -------------------------------------------------------------------------------------------------------

    def answered(self, ask: Ask, answer: Answer, now: float) -> WatchReport | None:
        """Take in what was answered `now` (monotonic), if it was not known on this connection."""
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
        if watched.path == znode_paths.LEADER:
            self._queue.extend(self._behind_the_list)
            self._behind_the_list.clear()
        watched.refused = isinstance(answer, Refused)
        asked = ask.question is watched.question or self._counts_children_first(watched)
        told = self._learn(watched, answer, now) if asked else None
        if watched.stale or isinstance(answer, Present):
            self._read(watched)
        elif isinstance(answer, Absent):
            if not self.persistent and ask.question is watched.question and watched.path in self._wanted:
                self._ask(watched, Question.EXISTS)
            else:
                self._release(watched)
        return told

    def _learn(self, watched: Watched, answer: Answer, now: float) -> WatchReport | None:
        seen: object = answer
        if isinstance(answer, Value):
            seen = answer.position
            self._compare_with_past(watched, hash(answer.data), now)
        elif isinstance(answer, Absent) and watched.question is Question.CHILDREN:
            seen = Children(())
        elif isinstance(answer, TooManyChildren):
            seen = TooManyChildren  # however many
        news = seen != watched.seen
        unseen_lives = isinstance(answer, Absent) and watched.counted and watched.events > 0
        if news and watched.counted and not watched.heard:
            self.deaf_at = watched.path
        if self._unread and not (watched.refused and watched.path in _DISCOVERY):
            self._unread.discard(watched)
        if not news and not unseen_lives:
            return None
        before, watched.seen = watched.seen, seen
        if watched.leads_on and not watched.refused:
            watched.names = answer.names if isinstance(answer, Children) else ()
            if isinstance(answer, TooManyChildren) and watched.path == znode_paths.LEADER:
                watched.names = (znode_paths.LATCH.rpartition("/")[2],)  # who has so many jobs has it
            self._follow_lists(heard=before is not TooManyChildren and not isinstance(before, Refused))
        return self._told(watched, answer)

    def _told(self, watched: Watched, answer: Answer) -> WatchReport:
        births = watched.births if znode_paths.LATCH in self._watched else None
        told = WatchReport(watched, answer, watched.events if watched.counted else None, births)
        watched.events = 0
        watched.heard = False
        # A read leaves a one-shot watch where there is something. What cannot be read is not heard of either.
        watched.counted = not isinstance(answer, Refused) and (self.persistent or not isinstance(answer, Absent))
        return told

    def _compare_with_past(self, watched: Watched, value: int, now: float) -> None:
        if value == watched.value:
            return
        if value in watched.past:
            self._note_unrest(watched, now, _RETURN_WEIGHS)
        if watched.value is not None:
            watched.past = (watched.value, *(other for other in watched.past if other != value))[:_VALUES_REMEMBERED]
        watched.value = value

    def _note_unrest(self, watched: Watched, now: float, weight: int) -> None:
        """Two that delete each other's node as fast as they can would have us read and tell as fast as we can: now and then is enough."""
        watched.unrest = (*watched.unrest, *(now,) * weight)[-_UNREST:]
        if len(watched.unrest) == _UNREST and now - watched.unrest[0] <= _UNREST_SECONDS:
            watched.resting = True
            self.resting.add(watched)

    # -- which paths ---------------------------------------------------------------------------------------------------

    def _ask(self, watched: Watched, question: Question | None = None) -> None:
        watched.reading = True
        watched.stale = False
        parent = znode_paths.counted_at(watched.path) if self.persistent else None
        listed = self._watched.get(znode_paths.LEADER)
        waits = parent is not None and listed is not None and listed.seen is None and listed.reading
        queue = self._behind_the_list if waits else self._queue
        if parent and watched.births is None:
            queue.append(Ask(watched, Question.EXISTS, parent))
        question = question or (Question.EXISTS if self._counts_children_first(watched) else watched.question)
        queue.append(Ask(watched, question, watched.path))

    def _counts_children_first(self, watched: Watched) -> bool:
        """Whether a list is asked how long it is before it is read. Where each question leaves a watch, it is not."""
        return self.persistent and watched.question is Question.CHILDREN

    def _add(self, path: str, question: Question, *, heard: bool = True) -> Watched:
        """`heard`: whether what is new about it has been. Not where its list could not be read: it may have stood there all the time."""
        watched = self._watched[path] = Watched(path, question)
        if self._unread is not None:
            self._unread.add(watched)
        elif heard and self.persistent and question is Question.VALUE and not path.startswith(f"{znode_paths.JOBS}/"):
            watched.seen = Absent()  # its creation would have been heard
            watched.counted = True
        return watched

    def _follow_lists(self, *, heard: bool = True) -> None:
        """Watch what the lists lead to now. `heard`: see `_add`."""
        names = {path: watched.names for path, watched in self._watched.items() if watched.leads_on}
        before, self._wanted = self._wanted, znode_paths.wanted(names)
        if self.persistent:
            below_jobs = any(path.startswith(f"{znode_paths.JOBS}/") for path in self._watched)
            self.roots = self._wanted.roots | ({znode_paths.JOBS} if below_jobs else frozenset())
        else:
            self.roots = frozenset()
        lists, nodes = self._wanted.lists - before.lists, self._wanted.nodes - before.nodes
        for paths, question in ((lists, Question.CHILDREN), (nodes, Question.VALUE)):
            for path in paths - self._watched.keys():
                self._ask(self._add(path, question, heard=heard))
        for watched in [watched for watched in self._watched.values() if watched.path not in self._wanted]:
            if watched.path in _DISCOVERY or (watched.seen in _NOTHING and watched.idle):
                self._forget(watched)

    def _release(self, watched: Watched) -> None:
        """Let go of a path where there is nothing, unless something is to be expected there that no watch tells of."""
        wanted = self._always if self.persistent else self._wanted
        if watched.path not in wanted and watched.idle and self._watched.get(watched.path) is watched:
            self._forget(watched)

    def _forget(self, watched: Watched) -> None:
        del self._watched[watched.path]
        self.resting.discard(watched)
        if self._unread:
            self._unread.discard(watched)
