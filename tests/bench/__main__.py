"""`make bench`: the figures of docs/project/benchmarks.md that take minutes, one after the other. The others have a command each."""

import subprocess
import sys

BENCHES = (
    *("step", "storm", "idle", "latency", "page", "kubernetes"),
    *("evidence", "audit", "small_segments", "compaction"),
)

for module in BENCHES:
    print(f"\n## python -m tests.bench.{module}\n", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.bench.{module}"], check=True)
