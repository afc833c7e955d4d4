"""`watch`, `who` and `ha check`, which read the stores."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from sidecar.cli.exit_status import CANNOT_TELL, DONE, FAILED, not_told_if_interrupted, status_exit
from sidecar.cli.logs import only_warnings
from sidecar.cli.options import CONFIG, OUTPUT, TIMEOUT, Output, cluster_options, options, output
from sidecar.cli.printing import columns, print_document, print_line, print_table, print_text, print_value
from sidecar.core.cluster.status import Status
from sidecar.core.counted import counted
from sidecar.core.ha.finding import WORST_FIRST, CheckVerdict
from sidecar.core.pods import host_port
from sidecar.core.sanitize import clean

if TYPE_CHECKING:
    from sidecar.app.ha_checking import CheckedCluster
    from sidecar.core.views.leader_view import Leader


@click.command()
@click.option(
    "--view",
    type=click.Choice(["transitions", "flink"]),
    default="transitions",
    show_default=True,
    help="The observed transitions; or the calls that Flink's own listeners get.",
)
@OUTPUT
@cluster_options
def watch(view: Literal["transitions", "flink"], output: Output, **overrides: Any) -> None:
    """Print leader changes from now on. Keeps no state and sends no alerts; ends when interrupted."""
    from sidecar.app import status_reader
    from sidecar.core.cluster.record_lines import transition_line
    from sidecar.settings import load_cluster

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = load_cluster(overrides)
    if view == "flink":
        for call in status_reader.flink_calls(cluster):
            leader = f"{clean(call.leader_address or 'null')} {call.leader_session_id or 'null'}"
            print_value(call, f"{call.at} {_component(call.component, call.job_id):45} {leader}", output)
    else:
        for record in status_reader.transitions(cluster):
            print_value(record, f"{record.observed_at} {transition_line(record)}", output)


@click.command()
@output("text", "wide", "json")
@TIMEOUT
@cluster_options
def who(output: str, timeout: float, **overrides: Any) -> int:
    """Print how one cluster is, and the leader of each component. Since when, and with how many contenders.

    Exit status 0: OK, STOPPED or UNCHECKED. 3: BLIND, the store cannot be read or the cluster does not exist. 1: any other status. This
    command asks no REST server: whether jobs run is not known. For all clusters of a configuration: `status`.

    In Kubernetes, where the address of a dead leader stays, the command waits until each lease is renewed or expires.
    """
    from sidecar.app import status_reader
    from sidecar.settings import load_cluster

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    only_warnings()
    with not_told_if_interrupted():
        verdict, leaders = status_reader.who(load_cluster(overrides), timeout)
    if output == "json":
        for leader in leaders:
            print_value(leader, "", "json")
    else:
        width = None if output == "wide" else columns()
        print_text(f"[{verdict.status}] {verdict}", width=width, indent="  ")
        _print_leaders(leaders, width)
    return status_exit(Status(verdict.status))


def _print_leaders(leaders: "Sequence[Leader]", width: int | None) -> None:
    rows = [("COMPONENT", "STATE", "LEADER", "SINCE", "CONTENDERS")]
    for leader in leaders:
        job = leader.job_id if width is None or leader.job_id is None else leader.job_id[:8]
        address = leader.leader_address or "" if leader.state == "held" else leader.reason or "no leader"
        since: str = leader.since or leader.observed_since
        if width:
            address, since = host_port(address), f"{since[:19].replace('T', ' ')}Z"
        since = since if leader.since else f"before {since}"
        contenders = "?" if leader.contenders is None else str(leader.contenders)
        rows.append((_component(leader.component, job), leader.state, address, since, contenders))
    print_table(rows, width=width, flexible=[2])


def _component(component: str, job_id: str | None) -> str:
    return f"{component} {job_id}" if job_id else component


_WIDTH: Final = max(map(len, WORST_FIRST)) + 1


@click.group()
def ha() -> None:
    """Whether a failover would work."""


@ha.command("check")
@options(CONFIG, output("text", "json", "yaml"), cluster_options)
def check(config: Path | None, output: Literal["text", "json", "yaml"], **overrides: Any) -> int:
    """Find what would make a failover fail, before it is needed: no standby, an ensemble or a session timeout that is too small, data on a
    local disk, missing rights, leftovers.

    It only reads. Each check is PASS, RISK (with what to do) or UNKNOWN (with what is missing): docs/reference/ha-checks.md.

    Exit status 0: every check passed. 1: there is a RISK. 3: there is none, but something is UNKNOWN.
    """
    from sidecar.app.ha_checking import check_all
    from sidecar.settings import load

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    only_warnings()
    with not_told_if_interrupted():
        clusters = check_all(load(config, overrides, secrets=False))
    if output == "text":
        for cluster in clusters:
            _print(cluster)
    else:
        print_document({"clusters": clusters}, output)
    verdicts = {check.verdict for cluster in clusters for check in cluster.checks}
    if CheckVerdict.RISK in verdicts:
        return FAILED
    return CANNOT_TELL if CheckVerdict.UNKNOWN in verdicts else DONE


def _print(cluster: "CheckedCluster") -> None:
    risks, unknown, passed = (cluster.count(verdict) for verdict in WORST_FIRST)
    print_line(
        f"{clean(cluster.cluster_id)}: {counted(risks, 'risk')}, {unknown} unknown, {passed} passed; {cluster.place}"
    )
    for check in sorted(cluster.checks, key=lambda check: WORST_FIRST.index(check.verdict)):
        print_line(f"  {check.verdict:{_WIDTH}}{check.check}: {check.text}")
        if check.advice:
            print_line(f"  {'':{_WIDTH}}{check.advice}")
