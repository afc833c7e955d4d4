"""`make bench`: every figure of docs/benchmarks.md, one after the other."""

import subprocess
import sys

for title, module in (("Decoder", "decoder"), ("A storm of leaders", "burst"), ("Idle", "idle")):
    print(f"\n## {title}: python -m tests.bench.{module}\n", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.bench.{module}"], check=True)
