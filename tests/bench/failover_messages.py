"""Writes the messages about six failovers of a real Flink: `python -m tests.bench.failover_messages docs/reference/messages.md`."""

import sys
import tempfile
from pathlib import Path

from tests.kit.six_failovers import page, six_failovers
from tests.lab.flink import Lab


def main(file: Path) -> None:
    """Let them happen, and keep the page up to its first heading of one."""
    introduction = file.read_text().partition("\n## ")[0].rstrip()
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "lab", progress=print) as lab:
        lab.start()
        lab.submit_job()
        failovers = six_failovers(lab, Path(folder) / "sidecar")
    file.write_text(f"{introduction}\n\n{page(failovers)}".rstrip() + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
