"""Alertmanager's own `amtool`, from Debian's package, judges routes."""

import subprocess
from pathlib import Path
from typing import Final

from tests.kit.debian import find_tool

_ASK_SECONDS: Final = 20.0


class AmtoolError(Exception):
    """It refuses to judge."""


def find_amtool() -> Path:
    """`amtool`: see `find_tool`. Raises PackageError."""
    return find_tool("amtool", "prometheus-alertmanager")


def receivers(amtool: Path, config: Path, labels: list[str]) -> str:
    """Who gets an alert with these labels (`name="value"`), as amtool prints it. Raises AmtoolError: it refuses the file."""
    command = [str(amtool), "config", "routes", "test", f"--config.file={config}", *labels]
    # It greets with the Alertmanager that it would ask without a file, on stderr.
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    if answer.returncode != 0:
        raise AmtoolError(f"{config}: {answer.stderr}")
    return answer.stdout.strip()
