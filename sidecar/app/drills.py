"""`drill start`, `stop` and `report`: change the document of silences in a cluster's store, and read a sidecar's journal."""

from collections.abc import Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Final
from uuid import uuid4

from sidecar.app import history, silencing
from sidecar.core.alerting import silence_document
from sidecar.core.alerting.silence_document import Expectation, SilencesError, Written, drill_of
from sidecar.core.policy.policy import ALL_FOUND
from sidecar.core.records import Death, Drill
from sidecar.core.sanitize import clean
from sidecar.core.views import drill_report, episode_view
from sidecar.core.views.drill_report import Report
from sidecar.core.views.silence_view import SilenceView, silence_view
from sidecar.core.views.snapshot import Snapshot
from sidecar.runtime.clock import Clock
from sidecar.settings import Settings, SettingsError
from sidecar.settings.file.settings_error import did_you_mean

LAST: Final = "last"
"""Used in place of a drill's id: the newest drill."""


def start(
    settings: Settings, cluster_id: str | None, window: int, expects: Expectation, comment: str, author: str
) -> SilenceView:
    """Open the window of a drill in the store of a cluster (None: of the only one). Raises SettingsError, SilencesError."""
    stores = silencing.stores_of(settings)
    name = ALL_FOUND if ALL_FOUND in stores else _chosen(stores, cluster_id)
    if cluster_id is None and name == ALL_FOUND:
        raise SettingsError("--cluster: which one? This configuration watches all clusters that are found")
    drilled = (cluster_id or name).strip("/")
    if not 0 < len(drilled) <= silence_document.LONGEST_TEXT or not drilled.isprintable():
        raise SettingsError(f"--cluster: {clean(drilled)!r} is no cluster id")
    now = Clock()().wall
    drill = drill_of(str(uuid4()), drilled, now, now + window, expects, author, comment)

    def change(silences: Mapping[str, Written]) -> Mapping[str, Written]:
        of_cluster = (silence for silence in silences.values() if silence.drilled_cluster == drilled)
        other = next((silence for silence in of_cluster if not silence.is_over(now)), None)
        if other:
            raise SilencesError(f"drill {other.id} of {drilled} is open: end it with `drill stop`")
        return silence_document.added(silences, drill, now, settings.silences.longest)

    silencing.change_each(stores, [name], change, f"drill {drill.id}")
    return silence_view(drill, "active", [name], None)


def _chosen(stores: Mapping[str, object], cluster_id: str | None) -> str:
    """The one cluster that is meant. Raises SettingsError."""
    if cluster_id is None:
        if len(stores) == 1:
            return next(iter(stores))
        raise SettingsError(f"--cluster: which one? This configuration has {', '.join(map(clean, stores))}")
    if (name := cluster_id.strip("/")) not in stores:
        raise SettingsError(f"--cluster: no cluster of this configuration is called so: {did_you_mean(stores, name)}")
    return name


def stop(settings: Settings, name: str | None) -> str:
    """End the drill whose id begins with `name` (None: the only one) now; returns its id. Raises SilencesError, SettingsError."""
    listing = silencing.listed(settings)
    drills = [silence for silence in listing.silences if silence.drill and silence.id.startswith(name or "")]
    if not drills and listing.problem:
        raise SilencesError(listing.problem)
    if len(drills) != 1 or (name is not None and len(name) < silencing.SHORTEST_ID):
        which = f" whose id begins with {clean(name)}" if name else ""
        listed = f": {', '.join(f'{silence.id} ({_cluster_of(silence)})' for silence in drills)}" if drills else ""
        raise SilencesError(f"there {'are several open drills' if drills else 'is no open drill'}{which}{listed}")
    return silencing.expire(settings, drills[0].id)


def _cluster_of(drill: SilenceView) -> str:
    return clean(" ".join(drill.matchers))


def report(state_dir: Path, name: str) -> Report:
    """The report of the drill whose id begins with `name`, or of LAST, from the journal in `state_dir`. Raises JournalError,
    NoDrillError."""
    with closing(history.reader(state_dir)) as journal:
        newest = journal.newest()
        drills = [*journal.newest_first(Drill, 0, newest)][::-1]
        of, ended, earlier = drill_report.chosen(drills, None if name == LAST else name)
        state = journal.state()
        waiting = (
            record for record in episode_view.unrecorded(Snapshot(Clock()(), state)) if isinstance(record, Death)
        )
        return drill_report.build_report(of, ended, earlier, chain(journal.remembered(), waiting), state)
