"""Routes, judged by Alertmanager's amtool: `python -m tests.bench.routing_judge [trees] [label sets for each]`."""

import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.kit.amtool import find_amtool, receivers
from tests.kit.route_trees import Tree, label_set


def main(trees: int = 1000, asked: int = 10) -> int:
    amtool, random, began = find_amtool(), Random(), time.monotonic()
    differences, answers = 0, set()
    with TemporaryDirectory() as folder:
        for _ in range(trees):
            tree = Tree(random, Path(folder))
            for labels in (label_set(random) for _ in range(asked)):
                judged, ours = receivers(amtool, tree.alertmanager, labels), tree.receivers(labels)
                answers.add(judged)
                if judged != ours:
                    differences += 1
                    print(f"amtool {judged}, we {ours}: {labels}\n{tree.alertmanager.read_text()}")
    seconds = time.monotonic() - began
    print(f"{trees} trees, {asked} label sets each: {differences} differences, {len(answers)} answers, {seconds:.0f} s")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
