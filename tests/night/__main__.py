"""`python -m tests.night --store zookeeper`: real failures and planned actions, judged from outside. Exit status 1: something was wrong."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.kit.recovery_scene import LABS
from tests.night.judge import Verdict, judge
from tests.night.night import Played, play
from tests.night.scenarios import SCENARIOS


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, judge, print a table; what was observed is kept as JSON in `--folder`."""
    parser = argparse.ArgumentParser(prog="python -m tests.night", description=__doc__)
    parser.add_argument("--store", choices=[*LABS], default="zookeeper")
    parser.add_argument("--flink", default="2.3.0", help="its version")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="scenarios, by a part of their name"
    )
    parser.add_argument("--folder", type=Path, help="where the evidence goes; else a temporary folder")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="play nothing: judge an earlier night again")
    options = parser.parse_args(arguments)
    chosen = {
        name: scenario
        for name, scenario in SCENARIOS.items()
        if not options.only or any(part in name for part in options.only)
    }
    if options.judge:
        return _report([judge(one) for one in msgspec.json.decode(options.judge.read_bytes(), type=list[Played])])
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="night-"))).absolute()
    played = play(options.store, options.flink, chosen, folder, _say)
    (folder / "night.json").write_bytes(msgspec.json.encode(played))
    _say(f"judge it again: python -m tests.night --judge {folder / 'night.json'}")
    return _report([judge(one) for one in played])


def _report(verdicts: Sequence[Verdict]) -> int:
    for verdict in verdicts:
        after = "" if verdict.said_after is None else f", said after {verdict.said_after:.0f} s"
        _say(f"{'WRONG' if verdict.findings else 'right'}  {verdict.name}: {verdict.cause}, {verdict.death}{after}")
        for finding in verdict.findings:
            _say(f"         {finding}")
    wrong = sum(bool(verdict.findings) for verdict in verdicts)
    _say(f"{len(verdicts)} scenarios, {wrong} with something wrong")
    return int(wrong > 0)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
