"""`python -m tests.night --store zookeeper`: real failures and planned actions, judged from outside. Exit status 1: something was wrong."""

import argparse
import gzip
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from tests.kit.recovery_scene import LABS
from tests.night import report
from tests.night.judge import Verdict, judge
from tests.night.night import Played, play
from tests.night.scenario import Scenario
from tests.night.scenarios import SCENARIOS, of_store


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and judge. What was observed is a line of `night.jsonl` in `--folder` for each scenario."""
    parser = argparse.ArgumentParser(prog="python -m tests.night", description=__doc__)
    parser.add_argument("--store", choices=[*LABS], default="zookeeper")
    parser.add_argument("--flink", default="2.3.0", help="its version")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="scenarios, by a part of their name")
    parser.add_argument("--rounds", type=int, default=1, help="how often each is played")
    parser.add_argument("--seed", type=int, default=0, help="of their order; 0: that of the tables")
    parser.add_argument("--folder", type=Path, help="where the evidence goes; else a temporary folder")
    parser.add_argument(
        "--judge", type=Path, nargs="+", metavar="FILE", help="play nothing: judge earlier nights again"
    )
    parser.add_argument("--write", action="store_true", help="write the tables of docs/ from the nights of --judge")
    options = parser.parse_args(arguments)
    if options.judge:
        pairs = [judged(played) for file in options.judge for played in recorded(file)]
        if options.write:
            report.write(pairs)
        return _summary([verdict for _, verdict in pairs])
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="night-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    scenarios = order(options.store, options.only, options.rounds, options.seed)
    verdicts = []
    for played in play(options.store, options.flink, scenarios, folder, _say):
        with (folder / "night.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(played) + b"\n")
        verdicts.append(judged(played)[1])
        _tell(verdicts[-1])
    _say(f"judge it again: python -m tests.night --judge {folder / 'night.jsonl'}")
    return _summary(verdicts)


def order(store: str, only: Sequence[str], rounds: int, seed: int) -> list[tuple[str, Scenario]]:
    """What is played, each scenario once in a round. Without `only`: all that cut nobody off."""
    chosen = [
        (name, scenario)
        for name, scenario in of_store(store).items()
        if (any(part in name for part in only) if only else not scenario.cuts)
    ]
    played = []
    for number in range(rounds):
        played += Random(f"{seed}-{number}").sample(chosen, len(chosen)) if seed else chosen
    return played


def recorded(file: Path) -> list[Played]:
    """The scenarios of a night, from its file or the gzip of it."""
    content = file.read_bytes()
    lines = (gzip.decompress(content) if file.suffix == ".gz" else content).splitlines()
    return [msgspec.json.decode(line, type=Played) for line in lines]


def judged(played: Played) -> tuple[Played, Verdict]:
    """The scenario, and what is wrong with it by its row of the table."""
    return played, judge(played, SCENARIOS[played.name])


def _tell(verdict: Verdict) -> None:
    after = "" if verdict.said_after is None else f", said after {verdict.said_after:.0f} s"
    facts = ", ".join(f"{one.what} {one.said} ({_RIGHT[one.right]})" for one in verdict.judged)
    _say(f"    {'WRONG' if verdict.findings else 'right'}{after}: {facts or 'no failover'}")
    for finding in verdict.findings:
        _say(f"        {finding.kind}: {finding.words}")


_RIGHT = {True: "right", False: "wrong", None: "unknown"}


def _summary(verdicts: Sequence[Verdict]) -> int:
    wrong = sum(bool(verdict.findings) for verdict in verdicts)
    failovers = sum(verdict.failovers for verdict in verdicts)
    _say(f"{len(verdicts)} scenarios, {failovers} failovers, {wrong} scenarios with something wrong")
    return int(wrong > 0)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
