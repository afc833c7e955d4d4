"""`timeline`, `episodes`, `explain` and `annotate`."""

import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from sidecar.cli.options import CONFIG, OUTPUT, STATE_DIR, Output, cluster_options, options, output
from sidecar.cli.printing import columns, print_document, print_line, print_table, print_text, print_value
from sidecar.core.flink.leadership import Component
from sidecar.core.leadership.transitions import Kind
from sidecar.core.moment import Timestamp, micros, parsed, seconds, timestamp
from sidecar.core.pods import spelled
from sidecar.core.records import AnyRecord

if TYPE_CHECKING:
    from sidecar.core.views.episode_view import EpisodeView

_MOST: Final = 50
_TYPES: Final = tuple(str(record.__struct_config__.tag) for record in get_args(AnyRecord))
_KINDS: Final = (*_TYPES, *(kind.value for kind in Kind))
_COMPONENTS: Final = tuple(component.value for component in Component)
_which_sidecar = options(CONFIG, STATE_DIR, cluster_options)


@click.command()
@options(
    click.option(
        "--last", metavar="N", type=click.IntRange(1), help="The number of records  [50, or all of them with --since]"
    ),
    click.option(
        "--since", metavar="TIME", help="Only records from then on: a duration like 2h, or 2026-11-23T10:00 (in UTC)."
    ),
    click.option("--follow", is_flag=True, help="Go on with each record as it is written, until interrupted."),
    click.option(
        "--component", "components", multiple=True, type=click.Choice(_COMPONENTS), help="Only this one; repeatable."
    ),
    click.option(
        "--kind",
        "kinds",
        metavar="KIND",
        multiple=True,
        type=click.Choice(_KINDS, case_sensitive=False),
        help=f"Only records of this type ({', '.join(_TYPES)}), or transitions of this kind (GRANTED, …); repeatable.",
    ),
    OUTPUT,
    _which_sidecar,
)
def timeline(
    last: int | None,
    since: str | None,
    follow: bool,
    components: tuple[str, ...],
    kinds: tuple[str, ...],
    output: Output,
    config: Path | None,
    state_dir: Path | None,
    **overrides: Any,
) -> None:
    """Print the last records of this sidecar.

    Leader changes, failovers, contenders, coverage, messages.
    """
    from sidecar.app import history
    from sidecar.core.cluster.record_lines import record_line

    folder = _state_dir(config, state_dir, overrides)
    begin = _moment(since) if since is not None else None
    most = last if last or begin else _MOST
    wanted = history.WantedRecords(most, begin, frozenset(components), frozenset(kinds))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    latest = history.latest(folder, wanted)
    clusters = set(latest.clusters)
    further = history.following(folder, wanted, latest.newest) if follow else ()
    for record in chain(latest.records, further):
        clusters.add(record.cluster_id)
        line = f"{record.observed_at} {record_line(record, with_cluster=len(clusters) > 1)}"
        print_value(record, line, output)


@click.command()
@options(
    click.option(
        "--last", default=20, show_default=True, metavar="N", type=click.IntRange(1), help="The number of failovers."
    ),
    click.option("--unreviewed", is_flag=True, help="Only failovers that nobody has annotated."),
    output("text", "wide", "json", "yaml"),
    _which_sidecar,
)
def episodes(
    last: int, unreviewed: bool, output: str, config: Path | None, state_dir: Path | None, **overrides: Any
) -> None:
    """Print the last failovers, the newest first.

    Those in progress come before all others. A failover is open for review until somebody annotates it.
    """
    from sidecar.app import history

    views = history.episodes(_state_dir(config, state_dir, overrides), last, unreviewed=unreviewed)
    if output in {"json", "yaml"}:
        print_document(views, output)
    elif views:
        _print_episodes(views, columns() if output == "text" else None)
    else:
        print_line("every recorded failover has been reviewed" if unreviewed else "no failover is recorded")


@click.command()
@click.argument("episode")
@OUTPUT
@_which_sidecar
def explain(episode: str, output: Output, config: Path | None, state_dir: Path | None, **overrides: Any) -> None:
    """Describe one failover and its cause.

    With the facts behind the cause. EPISODE is `last`, or the first characters of an id that `episodes` shows.
    """
    from sidecar.app import history
    from sidecar.core.views.explain import explanation_lines

    explained = history.explain(_state_dir(config, state_dir, overrides), episode)
    if output == "json":
        print_value(explained, "", output)
        return
    width = columns() if sys.stdout.isatty() else None
    for line in explanation_lines(explained):
        print_text(line, width=width, indent=" " * 11)


@click.command()
@click.argument("episode")
@click.option("--reason", required=True, metavar="TEXT", help="The note, up to 2000 characters.")
@click.option("--author", metavar="NAME", help="The author of the note.")
@click.option("--planned", is_flag=True, help="Say that the failover was planned.")
@OUTPUT
@_which_sidecar
def annotate(
    episode: str,
    reason: str,
    author: str | None,
    planned: bool,
    output: Output,
    config: Path | None,
    state_dir: Path | None,
    **overrides: Any,
) -> None:
    """Record a note on one failover.

    EPISODE is as in `explain`. The sidecar need not run. `explain`, the episode's page and the audit log show the note.
    """
    from sidecar.app import history

    noted = history.annotate(_state_dir(config, state_dir, overrides), episode, reason, author, planned=planned)
    print_value(noted, f"noted on episode {noted.episode_id}", output)


def _moment(text: str) -> Timestamp:
    """A moment from a duration before now, or from a time. Raises UsageError."""
    from sidecar.runtime.clock import Clock
    from sidecar.settings.file.durations import parse_duration

    try:
        return timestamp(Clock()().wall - parse_duration(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
        return timestamp(parsed((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()))
    except (ValueError, OverflowError):
        raise click.UsageError(f"--since {text!r} is no duration like 2h, and no time like 2026-11-23T10:00") from None


def _print_episodes(episodes: "Sequence[EpisodeView]", width: int | None) -> None:
    """VACANT is the time without a published leader, DOWN the bounds of the time without a working one. CAUSE has the reason of the
    process's death, where it is known and there is no room for both.
    """
    header = ["ID", "CLUSTER", "BEGAN (UTC)", "VACANT", "DOWN", "CAUSE", "STATUS"]
    if width is None:
        header += ["CONFIDENCE", "PLANNED", "JOBS", "LEADER", "DIED", "RECOVERY", "REVIEWED"]
    rows = (_row(episode, wide=width is None) for episode in episodes)
    print_table([header, *rows], width=width, flexible=[1, 5])


def _row(row: "EpisodeView", *, wide: bool) -> list[str]:
    from sidecar.core.cluster.record_lines import lasted, move

    began = row.opened_at[:19].replace("T", " ")
    at_least, at_most = row.downtime_seconds_at_least, row.downtime_seconds_at_most
    down = "" if at_least is None else lasted(at_least, at_most).replace("at least", "≥")
    vacant = "" if row.vacant_seconds is None else seconds(micros(row.vacant_seconds))
    vacant = vacant if row.phase == "CLOSED" else _PHASES[row.phase]
    died, recovery, status = row.death_reason or "", row.recovery_verdict or "", row.status or ""
    if not wide:
        cause = died if died not in {"", "unknown"} else row.cause
        return [row.id[:8], row.cluster_id, began[5:], vacant, down, cause, status]
    planned, reviewed = ("" if value is None else "yes" if value else "no" for value in (row.planned, row.reviewed))
    leader = spelled(row.before_address, row.before_pod)
    if row.after_address:
        leader = move(leader, spelled(row.after_address, row.after_pod))
    jobs = f"{row.jobs_affected}/{row.jobs_total}"
    outcome = died, recovery, reviewed
    what = vacant, down, row.cause, status, row.confidence
    return [row.id, row.cluster_id, began, *what, planned, jobs, leader, *outcome]


_PHASES: Final = {"OPEN": "no leader", "LEADER_BACK": "jobs"}
"""The things that a failover in progress still waits for, by its phase."""


def _state_dir(config: Path | None, folder: Path | None, overrides: dict[str, Any]) -> Path:
    """The folder of the journal. With `folder`, no configuration is needed."""
    from sidecar.settings import load

    return folder or load(config, overrides, secrets=False).state_dir
