"""The demo is the first thing that people run."""

import re
import subprocess
import sys

import pytest

from tests import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.spark]


def test_the_demo_shows_every_station_and_ends_well() -> None:
    """Transitions, the alert twice, metrics, the audit's answer; exit status 0."""
    demo = [sys.executable, "-m", "tests.demo"]
    shown = subprocess.run(demo, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    for component in ("resource_manager", "dispatcher", "rest_server", "job"):
        assert re.search(rf"REVOKED +A->null +{component}", shown.stdout)
        assert re.search(rf"GRANTED +null->B +{component}", shown.stdout)
    assert len(re.findall(r"by (?:HTTP|mail): \[(?:RECOVERING|UNCHECKED|OK)\] \S+: ", shown.stdout)) == 2
    assert 'kind="GRANTED"} 1.0' in shown.stdout
    assert "vacant_seconds" in shown.stdout
