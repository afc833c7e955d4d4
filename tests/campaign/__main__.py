"""`python -m tests.campaign --seed N`: random faults, and the verdict. The exit status is 1 where anything was found."""

import argparse
import logging
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaign.campaign import STORES, Plan, play
from tests.campaign.faults import KINDS
from tests.campaign.judge import WHATS, Verdict, judge

_MOST_LINES = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Play a campaign, print figures by kind and all findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same faults in the same order")
    parser.add_argument("--faults", type=int, default=60, help="on all stores together")
    parser.add_argument("--store", choices=[*STORES, "both"], default="both")
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="begin no fault after that")
    parser.add_argument("--kinds", default="", help=f"only these, by comma: {', '.join(KINDS)}")
    parser.add_argument("--sidecars", type=int, default=2, help="for each store")
    parser.add_argument(
        "--folder", type=Path, help="where the evidence goes; else to a temporary folder, kept where anything was found"
    )
    parser.add_argument(
        "--judge", type=Path, metavar="FOLDER", help="play nothing: judge the evidence of an earlier campaign again"
    )
    options = parser.parse_args(arguments)
    kinds = [kind for kind in options.kinds.split(",") if kind] or list(KINDS)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"there is no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    if options.judge:
        return _report({store: judge(options.judge / store) for store in STORES if (options.judge / store).is_dir()})
    stores = STORES if options.store == "both" else (options.store,)
    plan = Plan(
        seed=options.seed,
        faults=options.faults,
        stores=stores,
        kinds=kinds,
        minutes=options.minutes,
        sidecars=options.sidecars,
    )
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="campaign-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    _say(f"seed {plan.seed}; evidence in {folder}")
    logging.basicConfig(filename=folder / "campaign.log", level=logging.INFO)  # else the library talks in between
    status = _report(play(plan, folder, _say, _stopping()))
    if status == 0 and not options.folder:
        shutil.rmtree(folder)
    else:
        _say(f"seed {plan.seed}; evidence in {folder}; judge it again: python -m tests.campaign --judge {folder}")
    return status


def _stopping() -> threading.Event:
    """Set at SIGINT and SIGTERM: then the present fault is the last one, and everything is ended in order."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def _report(verdicts: Mapping[str, Verdict]) -> int:
    for store, verdict in verdicts.items():
        _say(
            f"\n{store}: {verdict.rounds} faults, {verdict.terms} leaders, {verdict.messages} messages, {verdict.records} records"
        )
        _say(
            f"  {', '.join(f'{what}: {verdict.count(what)}' for what in WHATS)}; labelled duplicates: {verdict.labelled}"
        )
        _say(f"  largest sidecar {verdict.largest_mib:.0f} MiB, most threads {verdict.most_threads}")
        if verdict.skipped:
            _say(f"  skipped: {verdict.skipped}")
        for kind, figures in sorted(verdict.by_kind.items()):
            found = {what: int(count) for what, count in figures.items() if what in WHATS}
            _say(
                f"  {kind:24} {figures['faults']:4.0f} faults, recovered within {figures['recovery']:6.1f} s, "
                f"reported within {figures['delay']:6.1f} s{f'  FOUND {found}' if found else ''}"
            )
        for finding in verdict.findings[:_MOST_LINES]:
            _say(f"  {finding.what.upper()} in {finding.number} {finding.kind}: {finding.text}")
        if len(verdict.findings) > _MOST_LINES:
            _say(f"  … and {len(verdict.findings) - _MOST_LINES} more")
    return int(any(verdict.findings for verdict in verdicts.values()))


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
