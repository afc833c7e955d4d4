"""`silence` and `drill`: change and read the documents of silences in the stores, with the configuration's credentials."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from sidecar.app import history
from sidecar.core.alerting import silence_document
from sidecar.core.alerting.silence_document import (
    Expectation,
    PatternError,
    SilencesError,
    StoredSilence,
    drill_of,
    is_vacuous,
    pattern_size,
)
from sidecar.core.flink.leadership import Component
from sidecar.core.policy.policy import ALL_FOUND
from sidecar.core.policy.routing import OWN_LABELS, Matcher, Operator, match_all
from sidecar.core.records import Death, Drill
from sidecar.core.sanitize import clean
from sidecar.core.views import drill_report, episode_view
from sidecar.core.views.alert_view import SilenceView, silence_view
from sidecar.core.views.drill_report import Report
from sidecar.core.views.snapshot import Snapshot
from sidecar.drivers import silence_stores_of
from sidecar.ports import LedgerError, LedgerStore
from sidecar.runtime.clock import Clock
from sidecar.settings import Settings, SettingsError
from sidecar.settings.alerting.routes import label_values, matchers, no_rule_has
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import did_you_mean

EVERYTHING: Final = Matcher("alert", Operator.NOT_EQUAL, "")
SHORTEST_ID: Final = 4
"""Characters of an id that are enough, if only one begins with them."""
MOST_CONFLICTS: Final = 20
"""Writes that may be lost to other writers."""
_AT_ONCE: Final = 8

_R = TypeVar("_R")
_Change = Callable[[Mapping[str, StoredSilence]], Mapping[str, StoredSilence] | None]
"""The silences of a document to write; None: there is nothing to change."""


def read_matchers(settings: Settings, texts: Sequence[str], *, everything: bool) -> tuple[Matcher, ...]:
    """The matchers of a new silence.

    Raises SettingsError: not a matcher, an unknown label, no rule has what they ask for, or all of them match everything.
    """
    labels = {*OWN_LABELS, *settings.external_labels}
    values_of = label_values(settings.rules)
    components = {"", *(component.value for component in Component)}
    result: list[Matcher] = []
    for text in texts:
        setting = Setting(text, "--matcher")
        for matcher in matchers(setting, labels):
            if matcher.operator in {Operator.MATCHES, Operator.MATCHES_NOT}:
                try:
                    pattern_size(matcher.value)
                except PatternError as error:
                    raise setting.error(f'the pattern of "{matcher.label}" {error}') from error
            if problem := no_rule_has(matcher, {**values_of, "component": components}):
                raise setting.error(problem)
            result.append(matcher)
    if all(map(is_vacuous, result)) and not everything:
        hint = 'add one like alert="FlinkLeaderChanged", or give --all'
        raise SettingsError(
            f"--matcher: {', '.join(map(str, result))} matches every alert without such a label: {hint}"
        )
    of_rules = [matcher for matcher in result if matcher.label in values_of]
    if of_rules and not any(
        match_all(of_rules, {"alert": rule.alert, "severity": rule.severity.value}) for rule in settings.rules
    ):
        raise SettingsError(f"--matcher: no rule has {' and '.join(map(str, of_rules))}: `rules show` prints the rules")
    return tuple(result) or (EVERYTHING,)


def add(settings: Settings, wanted: tuple[Matcher, ...], duration: int, comment: str, author: str) -> SilenceView:
    """Write a new silence into the store of each cluster that it may match. Raises SettingsError, SilencesError."""
    stores = stores_of(settings)
    names = [
        name
        for name in stores
        if name == ALL_FOUND or match_all(_cluster_matchers(settings, name, wanted), _labels(settings, name))
    ]
    if not names:
        value = next((matcher.value for matcher in wanted if matcher.label == "cluster_id"), "")
        raise SettingsError(f"--matcher: no cluster of this configuration matches: {did_you_mean(stores, value)}")
    now = Clock()().wall
    silence = StoredSilence(str(uuid4()), wanted, now, now + duration, author, comment)

    def change(silences: Mapping[str, StoredSilence]) -> Mapping[str, StoredSilence]:
        return silence_document.added(silences, silence, now, settings.silences.longest)

    change_each(stores, names, change, f"silence {silence.id}")
    return silence_view(silence, "active", names, 0)


class SilenceListing(Struct, frozen=True):
    """The silences that could be read, and why some could not: one line."""

    silences: Sequence[SilenceView]
    problem: str | None


def listed(settings: Settings, hid: Mapping[str, int] | None = None, *, expired: bool = False) -> SilenceListing:
    """All active silences, those that end next first; with `expired`, also those that have ended. `hid`: how many alerts each has hidden.

    Raises SettingsError.
    """
    silences: dict[str, StoredSilence] = {}
    names: dict[str, list[str]] = {}
    stores = stores_of(settings)
    documents, failed = _call_in_parallel(stores, stores, lambda name: _read(stores[name], settings.silences.longest))
    for name, document in documents.items():
        for silence in document.values():
            silences[silence.id] = silence
            names.setdefault(silence.id, []).append(name)
    now = Clock()().wall
    ordered = sorted(silences.values(), key=lambda written: (written.over_at, written.id))
    rows = [
        silence_view(
            silence,
            "expired" if silence.is_over(now) else "active",
            names[silence.id],
            None if hid is None else hid.get(silence.id, 0),
        )
        for silence in ordered
        if expired or not silence.is_over(now)
    ]
    return SilenceListing(rows, _problem("the silences could not be read", failed))


def expire(settings: Settings, name: str) -> str:
    """End the silence whose id begins with `name`, wherever it is; returns its id. Raises SilencesError, SettingsError."""
    listing = listed(settings)
    matching = [silence for silence in listing.silences if silence.id.startswith(name)]
    if not matching and listing.problem:
        raise SilencesError(listing.problem)
    if len(name) < SHORTEST_ID or len(matching) != 1:
        many = f"{len(matching)} active silences begin" if matching else "no active silence begins"
        raise SilencesError(f"{many} with {clean(name)}: give an id that `silence list` prints")
    [silence] = matching
    now = Clock()().wall

    def change(silences: Mapping[str, StoredSilence]) -> Mapping[str, StoredSilence] | None:
        this = silences.get(silence.id)
        return {**silences, this.id: replace(this, expired_at=now)} if this and not this.is_over(now) else None

    change_each(stores_of(settings), silence.clusters, change, f"the end of silence {silence.id}")
    return silence.id


def stores_of(settings: Settings) -> dict[str, LedgerStore]:
    """The documents of silences, by the names of their clusters. Raises SettingsError: there are none."""
    if stores := silence_stores_of(settings):
        return stores
    raise SettingsError(
        "silences are kept in the store that all sidecars of a cluster share, and ledger.mode is local: "
        "set it to auto or store, or use mute_time_intervals"
    )


def _labels(settings: Settings, cluster_id: str) -> dict[str, str]:
    [store] = [cluster.store for cluster in settings.clusters if cluster.cluster_id == cluster_id]
    return {**settings.external_labels, "cluster_id": cluster_id, "store": store.value}


def _cluster_matchers(settings: Settings, cluster_id: str, wanted: Iterable[Matcher]) -> list[Matcher]:
    """The matchers on labels that are the same for all alerts of a cluster."""
    return [matcher for matcher in wanted if matcher.label in _labels(settings, cluster_id)]


def change_each(stores: Mapping[str, LedgerStore], names: Collection[str], change: _Change, subject: str) -> None:
    """Change these documents. Raises SilencesError that says which have changed."""
    written, failed = _call_in_parallel(stores, names, lambda name: _change(stores[name], change))
    if problem := _problem(f"{subject} could not be written", failed):
        raise SilencesError(f"{problem}; written for {', '.join(written)}" if written else problem)


def _change(store: LedgerStore, change: _Change) -> None:
    try:
        for _ in range(MOST_CONFLICTS):
            document = store.read()
            silences, _ = silence_document.read(document.content, _UNBOUNDED)
            after = change(silences)
            if after is None or store.write(silence_document.written(after), document) is not None:
                return
            time.sleep(0.05)
        raise SilencesError("the document is written by others all the time: try again")
    finally:
        store.stop()


_UNBOUNDED: Final = 1 << 60
"""A command does not shorten what others have written."""


def _read(store: LedgerStore, longest: int) -> dict[str, StoredSilence]:
    try:
        return silence_document.read(store.read().content, longest)[0]
    finally:
        store.stop()


def _call_in_parallel(
    stores: Mapping[str, LedgerStore], names: Collection[str], act: Callable[[str], _R]
) -> tuple[dict[str, _R], dict[str, Exception]]:
    """Call `act` for each of these documents, several at a time. Returns the results and the errors, each by document."""
    results: dict[str, _R] = {}
    failed: dict[str, Exception] = {}

    def attempt(name: str) -> None:
        try:
            results[name] = act(name)
        except (LedgerError, SilencesError) as error:
            failed[name] = error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(attempt, [name for name in stores if name in names]))
    return results, failed


def _problem(failure: str, failed: Mapping[str, Exception]) -> str | None:
    if not failed:
        return None
    name = min(failed)
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"{failure} for cluster {name}{more}: {failed[name]}"


LAST: Final = "last"
"""Used in place of a drill's id: the newest drill."""


def start_drill(
    settings: Settings, cluster_id: str | None, window: int, expects: Expectation, comment: str, author: str
) -> SilenceView:
    """Open the window of a drill in the store of a cluster (None: of the only one). Raises SettingsError, SilencesError."""
    stores = stores_of(settings)
    name = ALL_FOUND if ALL_FOUND in stores else _chosen(stores, cluster_id)
    if cluster_id is None and name == ALL_FOUND:
        raise SettingsError("--cluster: which one? This configuration watches all clusters that are found")
    drilled = (cluster_id or name).strip("/")
    if not 0 < len(drilled) <= silence_document.LONGEST_TEXT or not drilled.isprintable():
        raise SettingsError(f"--cluster: {clean(drilled)!r} is no cluster id")
    now = Clock()().wall
    drill = drill_of(str(uuid4()), drilled, now, now + window, expects, author, comment)

    def change(silences: Mapping[str, StoredSilence]) -> Mapping[str, StoredSilence]:
        of_cluster = (silence for silence in silences.values() if silence.drilled_cluster == drilled)
        other = next((silence for silence in of_cluster if not silence.is_over(now)), None)
        if other:
            raise SilencesError(f"drill {other.id} of {drilled} is open: end it with `drill stop`")
        return silence_document.added(silences, drill, now, settings.silences.longest)

    change_each(stores, [name], change, f"drill {drill.id}")
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


def stop_drill(settings: Settings, name: str | None) -> str:
    """End the drill whose id begins with `name` (None: the only one) now; returns its id. Raises SilencesError, SettingsError."""
    listing = listed(settings)
    drills = [silence for silence in listing.silences if silence.drill and silence.id.startswith(name or "")]
    if not drills and listing.problem:
        raise SilencesError(listing.problem)
    if len(drills) != 1 or (name is not None and len(name) < SHORTEST_ID):
        which = f" whose id begins with {clean(name)}" if name else ""
        several = f": {', '.join(f'{silence.id} ({_cluster_of(silence)})' for silence in drills)}" if drills else ""
        raise SilencesError(f"there {'are several open drills' if drills else 'is no open drill'}{which}{several}")
    return expire(settings, drills[0].id)


def _cluster_of(drill: SilenceView) -> str:
    return clean(" ".join(drill.matchers))


def report_drill(state_dir: Path, name: str) -> Report:
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
