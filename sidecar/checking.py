"""What `config check` and the start of a sidecar find out beyond the text of the configuration. Connects to nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

from sidecar.settings import Settings, SettingsError
from sidecar.sinks.notify.notifier import check_endpoints
from sidecar.sinks.spool.segment_store import segment_store


def mistakes(settings: Settings) -> Iterator[SettingsError]:
    """What no sidecar can run with: endpoints that cannot be sent to, a spool that cannot be used."""
    locations = settings.locations()
    for destination, problem in check_endpoints(settings.endpoints()).items():
        yield SettingsError(f"{locations[destination]}: receiver {destination}: {problem}")
    try:
        segment_store(settings.spool.place, settings.observer)
    except SettingsError as error:
        yield error


def unwritable(folder: Path) -> str | None:
    """Why this user cannot create or write files in `folder`; None: nothing is known to prevent that. Changes nothing."""
    path = folder.absolute()
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    if not path.is_dir():
        return f"{path} is not a folder"
    if not os.access(path, os.W_OK | os.X_OK):
        what = "is not writable" if path == folder.absolute() else f"does not exist, and {path} is not writable"
        return f"{folder} {what} for user {os.geteuid()}"
    return None
