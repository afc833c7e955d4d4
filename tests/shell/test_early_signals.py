"""Signals that come before the sidecar is ready for them."""

import subprocess
import sys
from pathlib import Path

EARLY = """
import os, signal
from pathlib import Path
from sidecar.app import reloading, running
from sidecar.settings import load

reloads = []
class Reloader(reloading.Reloader):
    def ask(self):
        reloads.append("asked")
        super().ask()
        os.kill(os.getpid(), signal.SIGTERM)
running.Reloader = Reloader

early_signals = [signal.SIGHUP]
def early():
    if early_signals:  # the first time: it is what is loaded again that ends the process
        os.kill(os.getpid(), early_signals.pop())
    return load(Path("sidecar.yaml"), {})
status = running.run(early)
print(status, reloads)
"""


def test_a_sighup_while_the_configuration_is_loaded_loads_it_again(tmp_path: Path) -> None:
    """It does not end the process, and is not forgotten."""
    (tmp_path / "sidecar.yaml").write_text(
        "zookeeper: {quorum: '127.0.0.1:1'}\nhttp: {host: 127.0.0.1, port: 0}\nstate_dir: state\nspool: {url: spool}\n"
    )
    command = [sys.executable, "-c", EARLY]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "0 ['asked']\n"), ended.stderr


EARLIER = """
import os, signal, sys

class Importing:
    def find_spec(self, name, path=None, target=None):
        if name == "sidecar.cli.main":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, Importing())
sys.argv = ["flink-ha-sidecar", "run", "--config", "missing.yaml"]
from sidecar.__main__ import main
main()
"""


def test_a_sighup_while_the_program_is_loaded_is_ignored(tmp_path: Path) -> None:
    """There is no configuration yet that could be loaded again."""
    command = [sys.executable, "-c", EARLIER]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "missing.yaml: cannot be read" in ended.stderr
