"""The command `flink-ha-sidecar`."""

import sys
from io import TextIOWrapper
from typing import NoReturn

import click

from sidecar import __version__
from sidecar.cli import logs
from sidecar.cli.audit import audit
from sidecar.cli.exit_status import QuietGroup, exit_status
from sidecar.cli.history_commands import annotate, episodes, explain, timeline
from sidecar.cli.options import DEBUG_HELP, accept_debug
from sidecar.cli.rules_commands import alert, rules
from sidecar.cli.run import config, run
from sidecar.cli.silence_commands import drill, silence
from sidecar.cli.status_commands import alerts, status
from sidecar.cli.store_commands import ha, watch, who
from sidecar.net.tls import trust_authorities


@click.group(cls=QuietGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--debug", is_flag=True, help=DEBUG_HELP)
@click.version_option(__version__, prog_name="flink-ha-sidecar", message="%(prog)s %(version)s")
def cli(debug: bool) -> None:
    """Watches every Flink HA leader, notifies once per failover, keeps an audit log for Spark SQL."""
    logs.set_up(debug=debug)


_COMMANDS = (
    *(run, status, alerts, watch, who, ha),
    *(timeline, episodes, explain, annotate),
    *(config, rules, alert, silence, drill),
    audit,
)
for command in _COMMANDS:
    accept_debug(command)
    cli.add_command(command)


def main() -> NoReturn:
    """Run the command; exit 0 done, 1 failed at run time, 2 wrong usage or configuration, 141 the reader of the output is gone.

    Errors are one line on stderr.
    """
    trust_authorities()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 lacks some characters
    try:
        status = cli(prog_name="flink-ha-sidecar", standalone_mode=False) or 0
        sys.stdout.flush()  # here, where a closed pipe is an error like others
    except BaseException as error:  # noqa: BLE001  any error becomes one line and an exit status
        logs.end()  # what other threads still do is no longer news: the error is the last line
        status = exit_status(error, debug="--debug" in sys.argv)
    sys.exit(status)
