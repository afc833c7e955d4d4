"""What a question costs that starts Spark: `python -m tests.bench.cold_start [rounds, 5]`.

Two logs: one day of a small cluster, and one as large as a question may be to count as small. The ways take turns, so that whatever else
happens on the machine happens to each. CPU seconds are those of Python and the JVM, without the JVM that Spark's script starts beforehand.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.spark_session import spark_session
from sidecar.audit.warm_up import warm_up
from tests.audit.spooling import NOON, seal, transition
from tests.bench.stage import Table
from tests.kit.sidecar_process import COMMAND

QUERY = "SELECT changed_at, component, before_address, after_address, vacant_seconds FROM leader_changes ORDER BY changed_at DESC LIMIT 10"
_NO_ARCHIVE = "from sidecar.audit.spark import spark_session; spark_session.archive_options = lambda: ()\n"
_COMPILED = "from sidecar.audit.spark import spark_session; spark_session._SMALL_BYTES = -1\n"
_SECOND_COMPILER = "from sidecar.audit.log import workload; workload.run_over = lambda _: workload.Run.LARGE\n"
_MAIN = "\nfrom sidecar.cli.main import main; main()"
WAYS = {
    "as it is": "",
    "compiled as in a large log": _SECOND_COMPILER,
    "without the archive": _NO_ARCHIVE,
    "compiled and planned adaptively": _COMPILED,
    "neither": _NO_ARCHIVE + _COMPILED,
}
LOGS = {"150 changes": 150, "11,000 changes": 11_000}


def _ask(audit: Path, prelude: str) -> tuple[float, float, bytes]:
    """CPU seconds, seconds, and the answer."""
    began = time.monotonic()
    command = [sys.executable, "-c", prelude + _MAIN, "audit", "sql", "--audit", str(audit), QUERY]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        answer = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, time.monotonic() - began, answer


def _shell(audit: Path) -> list[float]:
    """Seconds of the first four questions to one `audit shell`."""
    done = subprocess.run(
        [*COMMAND, "audit", "shell", "--audit", str(audit)],
        input=f"\\timing\n{f'{QUERY};' * 4}",
        text=True,
        capture_output=True,
        check=True,
    )
    return [float(seconds) for seconds in re.findall(r"Time: (\S+) s", done.stderr)]


def _print(title: str, audit: Path, rounds: int) -> None:
    size = sum(file.stat().st_size for file in audit.rglob("*.parquet"))
    results: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    answers = set()
    for _ in range(rounds):
        for way, prelude in WAYS.items():
            cpu, seconds, answer = _ask(audit, prelude)
            results[way].append((cpu, seconds))
            answers.add(answer)
    assert len(answers) == 1
    print(f"\n{title}, {size / 1e6:.2f} MB, the same answer each way:\n")
    table = Table("audit sql", "CPU s", "s", "CPU, to as it is")
    cpu_of: Callable[[str], list[float]] = lambda way: [cpu for cpu, _ in results[way]]  # noqa: E731
    for way, figures in results.items():
        ratio = median(one / other for one, other in zip(cpu_of(way), cpu_of("as it is"), strict=True))
        table.row(way, f"{median(cpu_of(way)):.1f}", f"{median(seconds for _, seconds in figures):.1f}", f"{ratio:.2f}")
    print(f"\n`audit shell`, seconds of questions 1 to 4: {', '.join(f'{seconds:.2f}' for seconds in _shell(audit))}")


def main() -> None:
    warm_up()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        with spark_session("local[2]") as spark:
            for title, changes in LOGS.items():
                spool = Path(folder, title, "spool")
                made = [transition(number, NOON + timedelta(seconds=number)) for number in range(changes)]
                seal(spool, "jm-0", 1, made)
                ingest(spark, str(spool), str(spool.with_name("audit")))
        for title in LOGS:
            _print(title, Path(folder, title, "audit"), rounds)


if __name__ == "__main__":
    main()
