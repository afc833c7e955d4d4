"""`ha`."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from sidecar.cli.exit_status import CANNOT_TELL, DONE, FAILED, not_told_if_interrupted
from sidecar.cli.logs import only_warnings
from sidecar.cli.options import CONFIG, cluster_options, options, output
from sidecar.cli.printing import print_document, print_line
from sidecar.core.counted import counted
from sidecar.core.ha.finding import WORST_FIRST, Verdict
from sidecar.core.sanitize import clean

if TYPE_CHECKING:
    from sidecar.app.ha_checking import CheckedCluster

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
    if Verdict.RISK in verdicts:
        return FAILED
    return CANNOT_TELL if Verdict.UNKNOWN in verdicts else DONE


def _print(cluster: "CheckedCluster") -> None:
    risks, unknown, passed = (cluster.count(verdict) for verdict in WORST_FIRST)
    print_line(
        f"{clean(cluster.cluster_id)}: {counted(risks, 'risk')}, {unknown} unknown, {passed} passed; {cluster.place}"
    )
    for check in sorted(cluster.checks, key=lambda check: WORST_FIRST.index(check.verdict)):
        print_line(f"  {check.verdict:{_WIDTH}}{check.check}: {check.text}")
        if check.advice:
            print_line(f"  {'':{_WIDTH}}{check.advice}")
