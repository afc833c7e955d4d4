"""The folders of whoever runs a command, by the conventions of the XDG base directories."""

import os
from pathlib import Path
from typing import Final

_NAME: Final = "flink-ha-sidecar"


def cache_folder() -> Path:
    """The folder for data that can be made again: $FLINK_HA_SIDECAR_CACHE, else $XDG_CACHE_HOME/flink-ha-sidecar, else
    ~/.cache/flink-ha-sidecar."""
    if folder := os.environ.get("FLINK_HA_SIDECAR_CACHE"):
        return Path(folder).expanduser().absolute()
    return _base("XDG_CACHE_HOME", ".cache") / _NAME


def state_folder() -> Path:
    """The folder for data that is kept between runs, like a history: $XDG_STATE_HOME/flink-ha-sidecar, else
    ~/.local/state/flink-ha-sidecar."""
    return _base("XDG_STATE_HOME", ".local/state") / _NAME


def _base(variable: str, in_home: str) -> Path:
    folder = os.environ.get(variable)
    return Path(folder) if folder else Path(os.path.expanduser("~")) / in_home  # noqa: PTH111  Path.home fails for a user without one
