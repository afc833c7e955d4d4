"""`make bench`: every figure of docs/project/benchmarks.md, one after the other."""

import subprocess
import sys

BENCHES = {
    "Decoder": "decoder",
    "A storm of leaders": "burst",
    "The tick": "ticks",
    "A storm of alerts": "storm",
    "Idle": "idle",
    "From a write to the line": "latency",
    "Ten thousand jobs": "paths",
    "A leader that comes and goes": "cycles",
    "Kubernetes": "kubernetes",
    "Many clusters": "clusters",
    "Evidence": "evidence",
    "Pictures": "pictures",
    "Documents of strangers": "hostile",
    "Audit": "audit",
    "Rounds of an ingest": "ingest_rounds",
    "Compaction": "compaction",
    "Compacted dates": "compacted_dates",
    "The start of Spark": "cold_start",
}

for title, module in BENCHES.items():
    print(f"\n## {title}: python -m tests.bench.{module}\n", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.bench.{module}"], check=True)
