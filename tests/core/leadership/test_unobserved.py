"""How many changes nobody saw: exact, or not claimed to be."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.flink.leadership import Births, ZNodePosition
from sidecar.core.leadership.unobserved import Gap, Look, look
from sidecar.core.moment import Moment
from sidecar.core.observations import NodeObserved

PATH = "/leader/dispatcher/connection_info"


class Store:
    """One leader's znode and its parent, with ZooKeeper's counters; and what happened since somebody looked."""

    def __init__(self) -> None:
        self.zxid = 1
        self.parent = 1
        self.born = 0
        self.node: ZNodePosition | None = None
        self.writes = 0
        self.watched = False
        """Whether every write since the last look was heard."""

    def does(self, *what: str) -> None:
        for act in what:
            self.zxid += 1
            getattr(self, act)()

    def create(self) -> None:
        if self.node is None:
            self.node = ZNodePosition(PATH, self.zxid, self.zxid, 0, 1, 0)
            self.born += 1
            self.writes += 1

    def set(self) -> None:
        if self.node:
            self.node = ZNodePosition(PATH, self.node.czxid, self.zxid, self.node.version + 1, 1, 0)
            self.writes += 1

    def delete(self) -> None:
        if self.node:
            self.node = None
            self.writes += 1

    def delete_parent(self) -> None:
        self.delete()
        self.parent, self.born = self.zxid, 0

    def cut(self) -> None:
        self.watched = False

    def looked_at(self, before: Look | None, *, with_births: bool = True) -> tuple[Look, int]:
        """The look that follows `before`, and how much it really missed."""
        unseen = max(0, self.writes - 1)  # what stands now, or that nothing does, is seen
        births = Births(self.parent, self.born) if with_births else None
        writes = self.writes if self.watched else None
        self.writes, self.watched = 0, True
        return look(before, NodeObserved(Moment(0, 0), "default", PATH, b"", self.node, writes, births)), unseen


def missed(*acts: str, first: Sequence[str] = ("create",), with_births: bool = True) -> Gap:
    """What `acts` hid between two looks, the first of them after `first`."""
    store = Store()
    store.does(*first)
    before, _ = store.looked_at(None, with_births=with_births)
    store.does(*acts)
    after, _ = store.looked_at(Look(PATH, before.czxid, before.version, before.births), with_births=with_births)
    return after.gap


HISTORIES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["create", "set", "set", "delete", "delete_parent", "cut"]), max_size=6), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


@given(HISTORIES)
def test_a_number_that_is_claimed_is_right(history: list[tuple[list[str], bool]]) -> None:
    """Whatever happens between looks, watched or cut off: the sum of what was missed is exact or not claimed, and never less than least."""
    store = Store()
    before, _ = store.looked_at(None)
    before = Look(before.path, before.czxid, before.version, before.births)
    missed = 0
    for acts, with_births in history:
        store.does(*acts)
        before, unseen = store.looked_at(before, with_births=with_births)
        missed += unseen
        assert before.gap.exact in {None, missed}
        assert before.gap.at_least <= missed


@pytest.mark.parametrize(
    ("acts", "exact"),
    [
        ((), 0),
        (("set",), 0),
        (("set", "set", "set"), 2),
        (("delete",), 0),
        (("delete", "create"), 1),
        (("delete", "create", "delete", "create", "set"), 4),
        (("delete", "create", "delete"), 2),
        (("delete_parent", "create"), 1),
    ],
)
def test_while_a_watch_hears_everything_every_number_is_known(acts: tuple[str, ...], exact: int) -> None:
    """Sets, and nodes that come and go between two looks, also with their parent: a deletion that nobody saw is a change like others."""
    assert missed(*acts) == Gap(exact, exact)


@pytest.mark.parametrize(
    ("acts", "gap"),
    [
        (("cut",), Gap(0, 0)),
        (("cut", "set"), Gap(0, 0)),
        (("cut", "set", "set", "set"), Gap(2, 2)),
        (("cut", "delete"), Gap(None, 0)),
        (("cut", "delete", "create"), Gap(None, 1)),
        (("cut", "delete", "create", "delete", "create", "set"), Gap(None, 4)),
        (("cut", "delete", "create", "delete"), Gap(None, 2)),
        (("cut", "delete_parent", "create", "set"), Gap(None, 2)),
    ],
)
def test_cut_off_from_a_leader_one_znode_counts_all_and_several_count_a_least(acts: tuple[str, ...], gap: Gap) -> None:
    """Its version counts what one node went through. How often the old node was set before it went, nothing shows."""
    assert missed(*acts) == gap


@pytest.mark.parametrize(
    ("acts", "gap"),
    [
        (("cut",), Gap(0, 0)),
        (("cut", "create"), Gap(0, 0)),
        (("cut", "create", "set"), Gap(1, 1)),
        (("cut", "create", "delete"), Gap(None, 1)),
        (("cut", "create", "delete", "create"), Gap(None, 2)),
    ],
)
def test_cut_off_from_a_vacancy_the_first_new_node_counts_all(acts: tuple[str, ...], gap: Gap) -> None:
    """The parent counts the nodes: where one came, or none, nothing is missing."""
    assert missed(*acts, first=("create", "delete")) == gap


def test_without_the_parents_count_new_nodes_are_not_counted() -> None:
    """Several may have come and gone: that is not known, and not claimed."""
    assert missed("cut", "create", first=("create", "delete"), with_births=False) == Gap(None, 0)


def test_before_the_first_look_nothing_is_known() -> None:
    """What happened before anybody looked is not missed by anybody, and no number is claimed for it."""
    store = Store()
    store.does("create", "set", "set")
    first, _ = store.looked_at(None)
    assert first.gap == Gap(None, 0)


def test_a_store_that_went_back_in_time_is_not_counted() -> None:
    """A restored snapshot may hold an earlier version of the same node."""
    store = Store()
    store.does("create", "set", "set")
    before, _ = store.looked_at(None)
    assert store.node
    store.node = ZNodePosition(PATH, store.node.czxid, 3, 1, 1, 0)
    after, _ = store.looked_at(Look(PATH, before.czxid, before.version, before.births))
    assert after.gap == Gap(None, 0)
