"""What `config check` and the start of a sidecar find out beyond the text of the configuration. Connects to nothing."""

import os
from pathlib import Path

from sidecar.net.endpoints import AppriseUrl
from sidecar.settings import Settings, SettingsError
from sidecar.sinks.notify.notifier import check_endpoints
from sidecar.sinks.spool.segment_store import segment_store


def checked(settings: Settings) -> tuple[Settings, list[SettingsError]]:
    """The settings with the services that Apprise recognizes; and what no sidecar can run with: endpoints that cannot be sent to, a spool
    that cannot be used.
    """
    locations, endpoints = settings.locations(), check_endpoints(settings.endpoints())
    mistakes = [
        SettingsError(f"{locations[destination]}: receiver {destination}: {problem}")
        for destination, problem in endpoints.problems.items()
    ]
    try:
        segment_store(settings.spool.place, settings.observer)
    except SettingsError as error:
        mistakes.append(error)
    return settings.identified(endpoints.natives), mistakes


def identified(settings: Settings) -> Settings:
    """The settings with the services that Apprise recognizes. Unusable endpoints are left as they are."""
    endpoints = settings.endpoints().items()
    unknown = {name: url for name, url in endpoints if isinstance(url, AppriseUrl) and url.may_be_native}
    return settings.identified(check_endpoints(unknown).natives)


def unwritable(folder: Path) -> str | None:
    """Why this user cannot create or write files in `folder`; None: nothing is known to prevent that. Changes nothing."""
    path = folder.absolute()
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    if not path.is_dir():
        return f"{path} is not a folder"
    if not os.access(path, os.W_OK | os.X_OK):
        problem = "is not writable" if path == folder.absolute() else f"does not exist, and {path} is not writable"
        return f"{folder} {problem} for user {os.geteuid()}"
    return None
