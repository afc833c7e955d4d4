"""`status` and `alerts`."""

import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from sidecar.cli.exit_status import DONE, not_told_if_interrupted, status_exit
from sidecar.cli.logs import only_warnings
from sidecar.cli.options import CONFIG, STATE_DIR, TIMEOUT, cluster_options, options, output
from sidecar.cli.printing import Cell, columns, print_document, print_table, print_text
from sidecar.core.cluster.status import SHOWN, Status
from sidecar.core.counted import counted
from sidecar.core.moment import SECOND, age
from sidecar.core.pods import spelled

if TYPE_CHECKING:
    from sidecar.core.views.alert_view import AlertView
    from sidecar.core.views.status_view import JournalStatus, LeaderStatus, ShownCluster, ShownStatus

_COLOURS: Final = {"red": "red", "amber": "yellow", "grey": "magenta", "blue": "blue", "green": "green"}
"""The terminal colour of each status colour."""
_STATES: Final = {"held": None, "vacant": "red", "unknown": "magenta"}
_SEVERITIES: Final = {"critical": "red", "warning": "yellow", "info": None}
_MOST_JOBS: Final = 20
_CLEAR: Final = "\x1b[H\x1b[2J"

Form = Literal["text", "wide", "json", "yaml"]


@click.command()
@options(
    CONFIG,
    output("text", "wide", "json", "yaml"),
    click.option("--watch", is_flag=True, help="Print it again whenever it changes, until interrupted."),
    TIMEOUT,
    STATE_DIR,
    cluster_options,
)
def status(config: Path | None, output: Form, watch: bool, timeout: float, **overrides: Any) -> int:
    """Print how all clusters of the configuration are.

    The leaders are read from the stores. Alerts, and since when there is no leader, are read from the journal in the state folder.

    Exit status 0: OK, STOPPED or UNCHECKED. 3: BLIND, a store cannot be read or a cluster does not exist. 1: any other
    status; a cluster that is seen decides before one that is not.
    """
    from sidecar.app.status_reader import statuses
    from sidecar.settings import load

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    only_warnings()
    reader = statuses(load(config, overrides, secrets=False), timeout)
    try:
        if not watch:
            with not_told_if_interrupted():
                now = next(reader)
            _print(now, output)
            return status_exit(Status(now.status))
        _watch(reader, output)
    finally:
        reader.close()
    return DONE


def _watch(statuses: Iterator["ShownStatus"], output: Form) -> None:
    """Print each status that differs; on a terminal in place of the previous one, with growing ages."""
    is_screen = output in {"text", "wide"} and sys.stdout.isatty()
    printed: object = None
    for now in statuses:
        comparable: object = now.at[:19] if is_screen else _comparable(now)
        if comparable == printed:
            continue
        if is_screen:
            print(_CLEAR, end="")
        elif printed is not None and output != "json":
            print("---" if output == "yaml" else "")
        if output in {"text", "wide"}:
            print_text(f"{now.at[:19].replace('T', ' ')}Z")
        _print(now, output)
        printed = comparable


def _comparable(status: "ShownStatus") -> object:
    """The status without its times: `status --watch` prints again when this changes."""
    clusters = [
        (
            cluster.cluster_id,
            cluster.status,
            cluster.standbys,
            [(leader.component, leader.job_id, leader.state, leader.leader_session_id) for leader in cluster.leaders],
            [(alert.id, alert.state) for alert in cluster.alerts],
        )
        for cluster in status.clusters
    ]
    return clusters, status.problems, status.journal is not None and status.journal.running


def _print(status: "ShownStatus", output: Form) -> None:
    if output in {"json", "yaml"}:
        print_document(status, output)
        return
    width = None if output == "wide" else columns()
    for problem in status.problems:
        print_text(problem, "magenta", width=width, indent="  ")
    for cluster in status.clusters:
        _print_cluster(cluster, width)
    for line in _journal_lines(status.journal, status.journal_problem):
        print_text(line, width=width, indent="  ")


def _print_cluster(cluster: "ShownCluster", width: int | None) -> None:
    colour = _COLOURS[SHOWN[Status(cluster.status)].colour]
    print_text(f"[{cluster.status}] {cluster.cluster_id}: {cluster.sentence}", colour, width=width, indent="  ")
    if any(leader.state != "unknown" for leader in cluster.leaders):
        _print_leaders(cluster, width)
    for _, same in groupby(cluster.alerts, lambda alert: (alert.state, alert.severity, alert.alert)):
        first, *others = same
        about = ", ".join(sorted({alert.component or "all" for alert in (first, *others)})) if others else first.summary
        line = f"  {first.alert} ({first.severity}) {first.state}: {about}"
        print_text(line, _colour(first), width=width, indent="    ")


def _colour(alert: "AlertView") -> str | None:
    return _SEVERITIES.get(alert.severity) if alert.state == "firing" else None


def _print_leaders(cluster: "ShownCluster", width: int | None) -> None:
    leaders, more, led = _leaders_in_table(cluster.leaders, width)
    header = _HEADER if width else _WIDE_HEADER
    rows = (_row(leader, cluster.standbys, wide=not width) for leader in leaders)
    print_table([header, *rows], width=width, flexible=[1], indent="  ")
    if more:
        state = " without a leader" if all(leader.state == "vacant" for leader in more) else ""
        print_text(f"  and {len(more)} more {'job' if len(more) == 1 else 'jobs'}{state} (all: -o wide)")
    if led:
        print_text(f"  and {counted(led, 'job')} with a leader")


def _leaders_in_table(
    leaders: Sequence["LeaderStatus"], width: int | None
) -> tuple[list["LeaderStatus"], list["LeaderStatus"], int]:
    """The leaderships to list, jobs that are only counted, and how many jobs have a leader: a table for people has few lines."""
    if not width:
        return list(leaders), [], 0
    jobs = [leader for leader in leaders if leader.job_id]
    unled = sorted((leader for leader in jobs if leader.state != "held"), key=lambda leader: leader.state != "vacant")
    own = [leader for leader in leaders if not leader.job_id]
    return [*own, *unled[:_MOST_JOBS]], unled[_MOST_JOBS:], len(jobs) - len(unled)


_Row = Sequence[str | Cell]
_HEADER: Final[_Row] = ("COMPONENT", "LEADER", "SINCE", "AGE")
_WIDE_HEADER: Final[_Row] = (*_HEADER, "STANDBYS", "SESSION", "FLINK")


def _row(leader: "LeaderStatus", standbys: int | None, *, wide: bool) -> _Row:
    component = f"job {leader.job_id if wide else leader.job_id[:8]}" if leader.job_id else leader.component
    cells = component, _leader(leader), _term_text(leader), _age(leader)
    ready = "?" if standbys is None else str(standbys)
    return (*cells, ready, leader.leader_session_id or "", leader.flink or "") if wide else cells


def _leader(leader: "LeaderStatus") -> Cell:
    if leader.state == "held":
        return Cell(spelled(leader.leader_address, leader.pod))
    return Cell("no leader" if leader.state == "vacant" else leader.reason or "unknown", _STATES[leader.state])


def _term_text(leader: "LeaderStatus") -> str:
    """The start of the leader's term; where that is not known, the latest time at which it can have begun."""
    if leader.state == "unknown":
        return ""
    return _time(leader.since) if leader.since else f"before {_time(leader.observed_since)}"


def _age(leader: "LeaderStatus") -> str:
    if leader.state == "unknown":
        return ""
    return f"{'' if leader.since else '> '}{age(round(leader.age_seconds * SECOND))}"


def _time(stamp: str) -> str:
    return f"{stamp[:19].replace('T', ' ')}Z"


def _journal_lines(journal: "JournalStatus | None", problem: str | None = None) -> Iterator[str]:
    """The lines that say why statements about alerts may be incomplete."""
    if journal is None:
        yield f"Alerts are not known: {problem}."
    elif not journal.running:
        when = f" since {_time(journal.written_at)}" if journal.written_at else ""
        yield f"The sidecar of this state folder has not run{when}: alerts are those of that time."


@click.command()
@options(CONFIG, output("text", "wide", "json", "yaml"), STATE_DIR, cluster_options)
def alerts(config: Path | None, output: Form, **overrides: Any) -> None:
    """Print the alerts that fire, are suppressed, or are pending.

    From the journal in the state folder, with the rules of the configuration.
    """
    from sidecar.app.status_reader import remembered
    from sidecar.core.views import alert_view
    from sidecar.settings import load

    snapshot, journal = remembered(load(config, overrides, secrets=False))
    views = alert_view.alerts(snapshot)
    if output in {"json", "yaml"}:
        print_document(views, output)
        return
    if views:
        _print_alerts(views, snapshot.at.wall, None if output == "wide" else columns())
    elif journal.running:
        print_text("no alert fires")
    for line in _journal_lines(journal):
        print_text(line)


_ALERTS_HEADER: Final[_Row] = ("STATE", "SEVERITY", "ALERT", "ABOUT", "AGE")
_WIDE_ALERTS_HEADER: Final[_Row] = (*_ALERTS_HEADER, "RECEIVERS", "SUMMARY", "REASON")


def _print_alerts(alerts: Sequence["AlertView"], now: int, width: int | None) -> None:
    from sidecar.core.moment import parsed

    def row(alert: "AlertView") -> _Row:
        state = Cell(alert.state, _colour(alert))
        about = " ".join(part for part in (alert.cluster_id, alert.component, alert.job_id) if part)
        cells = state, alert.severity, alert.alert, about, age(now - parsed(alert.since))
        return cells if width else (*cells, ",".join(alert.receivers), alert.summary, alert.reason or "")

    header = _ALERTS_HEADER if width else _WIDE_ALERTS_HEADER
    print_table([header, *map(row, alerts)], width=width, flexible=[3])
    reasons = (f"{alert.alert} of {alert.cluster_id}: {alert.reason}" for alert in alerts if alert.reason)
    for reason in dict.fromkeys(reasons) if width else ():
        print_text(reason, width=width, indent="  ")
