"""Reads Flink's configuration folder for the facts of `ha check` about high availability."""

from pathlib import Path
from typing import Final

from sidecar.core.ha.finding import Unknown
from sidecar.core.ha.flink_checks import OPTIONS, FlinkFacts
from sidecar.core.sanitize import clean
from sidecar.settings.cluster.flink_conf import LEGACY, STANDARD, plain_options, read_configuration
from sidecar.settings.file.settings_error import SettingsError

_MASTERS: Final = "masters"
_UNTOUCHED: Final = ["localhost:8081"]
"""The content of the file as Flink ships it, in its image too: it says nothing about a cluster that is not started by it."""
_MOST_BYTES: Final = 64 << 10
_NOT_READ: Final = Unknown(
    "Flink's configuration was not read: give --flink-conf, or flink_conf_dir in the configuration"
)


def read_flink_facts(folder: Path | None, contenders: int | Unknown | None) -> FlinkFacts:
    """The facts of the folder. `contenders`: JobManagers that contend for leadership; None: the file `masters` says nothing of them."""
    masters = None if folder is None or contenders is None else _masters(folder)
    return FlinkFacts(
        options=_NOT_READ if folder is None else _options(folder),
        masters=masters,
        contenders=_NOT_READ if contenders is None else contenders,
    )


def _options(folder: Path) -> dict[str, str] | Unknown:
    """The options that are judged. All others are left out, since they may be secrets."""
    path = next((folder / name for name in (STANDARD, LEGACY) if (folder / name).exists()), folder / STANDARD)
    try:
        options = plain_options(path, read_configuration(path))
    except (SettingsError, OSError) as error:
        return Unknown(clean(error))
    values = {name: next((options[key] for key in keys if key in options), None) for name, keys in OPTIONS.items()}
    return {name: value for name, value in values.items() if value is not None}


def _masters(folder: Path) -> int | Unknown | None:
    try:
        with (folder / _MASTERS).open("rb") as file:
            text = file.read(_MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unknown(f"{folder / _MASTERS} cannot be read: {error.strerror}")
    lines = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    return None if lines == _UNTOUCHED else len(lines)
