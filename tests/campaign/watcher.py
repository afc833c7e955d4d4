"""One sidecar of a campaign: the real command, a relay before it, and a small disk for its state."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.campaign.flink import COMPONENTS
from tests.kit.relay import Wire
from tests.kit.sidecar_process import Sidecar

STATE_MEGABYTES: Final = 24
_CLOCK: Final = Path(__file__).parent / "clock"
"""With it in its path, Python has the clock of tests/campaign/clock/sitecustomize.py."""
# Each alert of these is soon over, so that a wrong one shows itself.
_RULES: Final = """\
rules:
  - {alert: FlinkLeaderChanged, on: leader_changed, severity: warning}
  - {alert: FlinkJobLeaderChanged, on: job_leader_changed, severity: info}
  - {alert: FlinkNoLeader, on: vacant, for: 5s, severity: critical}
"""
_WELL: Final = {"flink_ha_journal_up": 1.0, "flink_ha_outbox_pending": 0.0, "flink_ha_spool_pending_records": 0.0}


class Watcher(Sidecar):
    """One sidecar, and the relay between it and the store. It is restarted with what it had."""

    def __init__(self, folder: Path, cluster: str, url: str, relay: Wire, name: str) -> None:
        super().__init__(folder, f"{cluster}\n{_RULES}", [url], observer=name, group_wait="500ms", group_interval="1s")
        self.name = name
        self.relay = relay
        self._clock = folder / "clock"
        self.environment = {"PYTHONPATH": str(_CLOCK), "CAMPAIGN_CLOCK": str(self._clock)}

    def set_clock(self, ahead: int) -> None:
        """Its wall clock is ahead by so many seconds from now on."""
        self._clock.write_text(str(ahead))

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def limit_state(self) -> bool:
        """Give its state a small file system of its own, so that it can be filled. Whether we may."""
        self.state.mkdir(parents=True, exist_ok=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={STATE_MEGABYTES}m", "tmpfs", str(self.state)],  # noqa: S607  the system's
            capture_output=True,
            check=False,
        )
        return mounted.returncode == 0

    def keep_state(self) -> None:
        """The small file system goes, its files stay as evidence."""
        kept = self.folder / "state-kept"
        shutil.copytree(self.state, kept, dirs_exist_ok=True)
        subprocess.run(["umount", str(self.state)], capture_output=True, check=False)  # noqa: S607  the system's

    def begin_anew(self) -> None:
        """Without the journal it had, which stays as evidence."""
        if self.running:
            self.kill()
        kept = self.folder / f"journal-kept-{time.time():.0f}"
        kept.mkdir()
        for file in self.state.glob("journal.db*"):
            shutil.move(file, kept)
        self.start()

    def sees(self, host: str) -> bool:
        """Whether it shows this leader for all components."""
        shown = self.leader_addresses()
        return sum(f"@{host}:" in address or f"//{host}:" in address for address in shown) == len(COMPONENTS)

    def metric(self, name: str) -> float | None:
        """The value of a metric without labels."""
        lines = self.get("/metrics")[1].splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), None)

    def what_is_wrong(self, host: str) -> str:
        """Why it is not well: empty where it is."""
        if not self.running:
            return f"{self.name} has ended"
        for path in ("/livez", "/readyz"):
            status, answer = self.get(path)
            if status != 200:
                return f"{self.name}: {path} gives {status} {answer.strip()[:200]}"
        if not self.sees(host):
            return f"{self.name} does not show {host} as the leader of everything"
        for metric, well in _WELL.items():
            if (value := self.metric(metric)) != well:
                return f"{self.name}: {metric} is {value}"
        return ""

    def threads(self) -> int:
        assert self.process
        return len(os.listdir(f"/proc/{self.process.pid}/task"))  # noqa: PTH208  names are enough
