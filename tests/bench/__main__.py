"""`make bench`: the figures of docs/project/benchmarks.md that take minutes, one after the other. The others have a command each."""

import subprocess
import sys

BENCHES = (
    *("step", "storm", "idle zookeeper", "idle kubernetes", "latency zookeeper", "latency kubernetes", "page"),
    *("evidence", "audit", "small_segments"),
)

for bench in BENCHES:
    print(f"\n## python -m tests.bench.{bench}\n", flush=True)
    subprocess.run([sys.executable, "-m", *f"tests.bench.{bench}".split()], check=True)
