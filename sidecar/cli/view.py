"""`watch` and `who`."""

import signal
from typing import Any, Literal

import click

from sidecar.cli.logs import only_warnings
from sidecar.cli.options import OUTPUT, Output, cluster_options
from sidecar.cli.printing import print_value
from sidecar.core.cluster.record_lines import transition_line
from sidecar.core.sanitize import clean


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
    from sidecar import viewer
    from sidecar.settings import load_cluster

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = load_cluster(overrides)
    if view == "flink":
        for call in viewer.flink_calls(cluster):
            leader = f"{clean(call.leader_address or 'null')} {call.leader_session_id or 'null'}"
            print_value(call, f"{call.at} {_component(call.component, call.job_id):45} {leader}", output)
    else:
        for record in viewer.transitions(cluster):
            print_value(record, f"{record.observed_at} {transition_line(record)}", output)


@click.command()
@OUTPUT
@click.option(
    "--timeout",
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until all leaders are read and all leases are confirmed.",
)
@cluster_options
def who(output: Output, timeout: float, **overrides: Any) -> int:
    """Print the leader of each component. Since when, and with how many contenders.

    Exit status 1 if a component has no leader, or the store or the cluster cannot be read.

    In Kubernetes, where the address of a dead leader stays, the command waits until each lease is renewed or expires.
    """
    from sidecar import viewer
    from sidecar.settings import load_cluster

    only_warnings()
    leaders = viewer.who(load_cluster(overrides), timeout)
    for leader in leaders:
        component = _component(leader.component, leader.job_id)
        address = clean(leader.leader_address or "") if leader.state == "held" else (leader.reason or "no leader")
        contenders = "?" if leader.contenders is None else str(leader.contenders)
        since = leader.since or "before this look"
        print_value(
            leader, f"{component:45} {leader.state:8} since {since:27}  contenders {contenders}  {address}", output
        )
    return int(any(leader.state != "held" for leader in leaders))


def _component(component: str, job_id: str | None) -> str:
    return f"{component} {job_id}" if job_id else component
