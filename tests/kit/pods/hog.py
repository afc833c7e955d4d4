"""Makes a container run out of memory, at its real limit."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.kit.pods.truth import Death
from tests.kit.waiting import wait_for

# It joins the container's cgroup and takes more and more. At the limit the kernel kills the container's process, not this one: the kubelet
# gave that one the higher oom_score_adj.
_HOG: Final = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")
taken = []
while True:
    taken.append(b"1" * (4 << 20))
"""


def out_of_memory(cgroup: Path, victim: int) -> None:
    """Return when the kernel has killed process `victim` of that container. `cgroup`: the container's."""
    death = Death(victim)
    command = [sys.executable, "-c", _HOG, str(cgroup)]
    with subprocess.Popen(command) as hog:
        try:
            wait_for("the kernel to kill it", lambda: death.at is not None)
        finally:
            hog.kill()
