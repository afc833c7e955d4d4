"""The sandbox for real pods, where it cannot be had."""

import os
import subprocess

from tests import ROOT


def test_without_root_it_says_why_and_fails() -> None:
    """`make test-pods` ends with one line, before anything is fetched."""
    ended = subprocess.run(
        ["bash", "scripts/pods/sandbox.sh", "true"],  # noqa: S607  the system's
        cwd=ROOT,
        user=None if os.geteuid() else 65534,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (1, "pods: real pods need root: run this as root\n")
