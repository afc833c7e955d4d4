"""What is played, and the tables that are made of it."""

from pathlib import Path

from msgspec.structs import replace

from tests.night.__main__ import judged, order, recorded
from tests.night.judge import judge
from tests.night.report import PRECISION, messages, part_of, precision
from tests.night.scenarios import SCENARIOS, of_store
from tests.night.test_judge import HONEST, KILLED, record


def test_the_same_seed_gives_the_same_night() -> None:
    """Each scenario once in a round, and another seed another order; without one, that of the tables. Cuts are asked for by name."""
    names = {seed: [name for name, _ in order("zookeeper", [], 2, seed)] for seed in (0, 1, 2)}
    every = [name for name, scenario in of_store("zookeeper").items() if not scenario.cuts]
    assert names[0] == every * 2
    assert [name for name, _ in order("zookeeper", [], 2, 1)] == names[1] != names[2]
    assert sorted(names[1][: len(every)]) == sorted(names[1][len(every) :]) == sorted(every)
    assert [name for name, _ in order("kubernetes", ["is drained"], 1, 0)] == ["the leader's node is drained"]
    assert all(scenario.cuts for _, scenario in order("zookeeper", ["cut off"], 1, 0))
    assert len(order("zookeeper", ["cut off"], 1, 0)) == 5


def test_the_tables_count_what_was_judged() -> None:
    """Right, wrong and unknown by fact and confidence; what was confused with what; and what was wrong, by scenario."""
    wrong = replace(HONEST, store="kubernetes", records=record("death", reason="stopped"))
    pairs = [(played, judge(played, KILLED)) for played in (HONEST, wrong)]
    lines = [*precision(pairs)]
    assert "| both | | 2 | 2 |" in lines
    assert "| cause | high | 2 | 0 | 0 |" in lines
    assert "| death | high | 1 | 1 | 0 |" in lines
    assert "| planned |  | 0 | 0 | 2 |" in lines
    assert "| death | killed | stopped | wrong | 1 |" in lines
    assert "| a wrong death | 1 | the leader is killed (kubernetes) |" in lines
    table = [*messages(pairs)]
    assert len(table) == 4
    assert table[2].startswith("| the leader is killed | zookeeper | +22 s \\[RECOVERING] ")
    assert {*SCENARIOS} >= {played.name for played, _ in pairs}


def test_the_page_says_what_the_recorded_nights_show() -> None:
    """Judged again by today's judge."""
    nights = sorted(Path(__file__).with_name("recorded").glob("*.jsonl.gz"))
    pairs = [judged(played) for night in nights for played in recorded(night)]
    assert part_of(PRECISION).splitlines()[2:-2] == [*precision(pairs)]


def test_what_was_not_played_again_keeps_its_row() -> None:
    """A short night does not empty the table of messages."""
    pair = HONEST, judge(HONEST, KILLED)
    table = [*messages([pair], ["| the leader is killed | zookeeper | nothing |", "| a drill | zookeeper | a \\| b |"])]
    assert table[2].startswith("| the leader is killed | zookeeper | +22 s ")
    assert table[3:] == ["| a drill | zookeeper | a \\| b |"]
