"""What nights have shown, as the tables of docs/reference/messages.md and docs/project/precision.md."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.night.claims import Kind
from tests.night.judge import Verdict
from tests.night.night import Played

MESSAGES: Final = ROOT / "docs" / "reference" / "messages.md"
PRECISION: Final = ROOT / "docs" / "project" / "precision.md"
_BEGIN: Final = "<!-- python -m tests.night --judge FILE… --write -->\n"
_END: Final = "<!-- end of the table -->\n"
_PART: Final = re.compile(r"<!-- python -m tests\.night .*?<!-- end of the table -->\n", re.DOTALL)
_MOST_TITLES: Final = 3
"""Of a scenario: the first ones and the last."""
_FACTS: Final = ("cause", "death", "recovery", "planned")

Pair = tuple[Played, Verdict]


def write(pairs: Sequence[Pair]) -> None:
    """Put the tables into the two pages. What these nights did not play keeps its row in the table of messages."""
    earlier = [line for line in part_of(MESSAGES).splitlines() if line.startswith("| ")]
    for page, lines in ((MESSAGES, messages(pairs, earlier[1:])), (PRECISION, precision(pairs))):
        table = "".join(f"{line}\n" for line in lines)
        text = page.read_text(encoding="utf-8").replace(part_of(page), f"{_BEGIN}\n{table}\n{_END}")
        page.write_text(text, encoding="utf-8")


def part_of(page: Path) -> str:
    """What this program has written into the page, with its markers."""
    (part,) = _PART.findall(page.read_text(encoding="utf-8"))
    return str(part)


def messages(pairs: Sequence[Pair], earlier: Sequence[str] = ()) -> Iterator[str]:
    """For each scenario and store, the titles that the webhook got the last time. `earlier`: the rows of nights before."""
    yield "| what happens | store | what arrives: seconds after it, title without `lab:` |"
    yield "|---|---|---|"
    rows = {row.rpartition(" | ")[0]: row for row in earlier}
    for played, verdict in pairs:
        what = f"| {played.name} | {played.store}"
        titles = [*map(_cell, verdict.titles)]
        shown = titles if len(titles) <= _MOST_TITLES else [*titles[: _MOST_TITLES - 1], "…", titles[-1]]
        rows[what] = f"{what} | {'<br>'.join(shown) or 'nothing'} |"
    yield from rows.values()


def _cell(text: str) -> str:
    return text.replace("] lab: ", "] ").replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def precision(pairs: Sequence[Pair]) -> Iterator[str]:
    """How many failovers, what was right, what was wrong and how."""
    failovers: Counter[tuple[str, str]] = Counter()
    scenarios: Counter[tuple[str, str]] = Counter()
    for played, verdict in pairs:
        failovers[played.store, played.flink] += verdict.failovers
        scenarios[played.store, played.flink] += 1
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(played.began)) for played, _ in pairs})
    yield f"Measured on {' and '.join(days)}."
    yield ""
    yield "| store | Flink | scenarios played | failovers recorded |"
    yield "|---|---|---|---|"
    for (store, flink), number in sorted(failovers.items()):
        yield f"| {store} | {flink} | {scenarios[store, flink]} | {number} |"
    yield f"| both | | {scenarios.total()} | {failovers.total()} |"
    yield ""
    yield from _matrix(pairs)
    yield ""
    yield from _confusions(pairs)
    yield ""
    yield from _promises(pairs)


def _matrix(pairs: Sequence[Pair]) -> Iterator[str]:
    counted: dict[tuple[str, str], Counter[bool | None]] = {}
    for _, verdict in pairs:
        for one in verdict.judged:
            counted.setdefault((one.what, one.confidence), Counter())[one.right] += 1
    yield "| fact | confidence | right | wrong | unknown |"
    yield "|---|---|---|---|---|"
    for what in _FACTS:
        for (fact, confidence), numbers in sorted(counted.items()):
            if fact == what:
                yield f"| {what} | {confidence} | {numbers[True]} | {numbers[False]} | {numbers[None]} |"


def _confusions(pairs: Sequence[Pair]) -> Iterator[str]:
    """What was said, against what was true; of what is right, which of that."""
    judged = [one for _, verdict in pairs for one in verdict.judged]
    counted = Counter(
        (one.what, one.said if one.right else one.truth, one.said or "nothing", one.right) for one in judged
    )
    yield "| fact | in truth | said | | times |"
    yield "|---|---|---|---|---|"
    for what in _FACTS:
        for (fact, truth, said, right), number in sorted(counted.items(), key=str):
            if fact == what:
                yield f"| {what} | {truth} | {said} | {_RIGHT[right]} | {number} |"


_RIGHT: Final[Mapping[bool | None, str]] = {True: "right", False: "wrong", None: "unknown"}


def _promises(pairs: Sequence[Pair]) -> Iterator[str]:
    counted = Counter(finding.kind for _, verdict in pairs for finding in verdict.findings)
    yield "| what was wrong | times | in scenarios |"
    yield "|---|---|---|"
    for kind in Kind:
        names = {
            f"{played.name} ({played.store})"
            for played, verdict in pairs
            if any(f.kind is kind for f in verdict.findings)
        }
        yield f"| {kind} | {counted[kind]} | {', '.join(sorted(names))} |"
