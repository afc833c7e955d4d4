"""Which of Java's compilers compile Spark in a JVM on this machine (docs/project/adr/0030-start-of-spark.md)."""

import shlex
from enum import Enum
from pathlib import Path
from typing import Final

_DIRECTIVES: Final = Path(__file__).with_name("compiler_directives.json")


class Run(Enum):
    """A run of Spark, by how much it reads."""

    SMALL = "small"
    LARGE = "large"
    HUGE = "huge"


def options(run: Run) -> str:
    """The options of a JVM for such a run, quoted as in a shell.

    Java's first compiler alone is best for most runs, which are short: half of their CPU time would be spent on compiling code that hardly
    runs. But it calls native code for each copy in memory and for each thread-local variable. In a large run the second compiler compiles
    these few methods, which `compiler_directives.json` names. It needs counters in all code, which cost a second of CPU time. Only in a run
    of minutes does it pay to compile everything twice, and to collect garbage on all cores.
    """
    selected = f"-XX:+UnlockDiagnosticVMOptions {shlex.quote(f'-XX:CompilerDirectivesFile={_DIRECTIVES}')}"
    of_run = {
        Run.SMALL: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        Run.LARGE: f"-XX:+UseSerialGC {selected}",
        Run.HUGE: "-XX:+UseParallelGC",
    }
    # The code does not fit into the 48 MB that Java reserves for the first compiler alone: a long run would compile it again and again.
    return f"{of_run[run]} -XX:ReservedCodeCacheSize=240m"
