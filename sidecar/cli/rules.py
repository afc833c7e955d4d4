"""`rules test`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sidecar.cli.options import PATH, RULES_CONFIG, options

if TYPE_CHECKING:
    from sidecar.settings.test_file import Expectation
    from sidecar.simulation.run_test import Difference


@click.group()
def rules() -> None:
    """Try out rules and routes."""


@rules.command()
@click.argument("files", nargs=-1, metavar="[FILE]…", type=PATH)
@options(
    click.option(
        "--labels",
        metavar="LABELS",
        help="""Only print the receivers of an alert with these: 'alert="X",severity="info"'.""",
    ),
    RULES_CONFIG,
)
def test(files: tuple[Path, ...], labels: str | None, config: Path | None) -> int:
    """Run test files of rules. Or, with --labels, print the receivers of an alert.

    A test file names its own rules, so --config is for --labels. Exit status 1 if notifications differ from the expected ones.
    """
    if labels is not None:
        if files:
            raise click.UsageError("--labels is about the route alone: give no test file with it")
        print(_receivers(labels, config))
        return 0
    if not files:
        raise click.UsageError("give a test file, or --labels")
    if config:
        raise click.UsageError("a test file names its own rules, in rule_files: --config is for --labels")
    from sidecar.settings.test_file import read_tests

    suites = [(file, read_tests(file)) for file in files]
    from sidecar.simulation.run_test import compare, play

    status = 0
    for file, suite in suites:
        differences = [(test, compare(test, play(test, suite.rules))) for test in suite.tests]
        failed = [(test, difference) for test, difference in differences if difference]
        print(f"{file}: {len(differences) - len(failed)} of {len(differences)} tests passed")
        for test, difference in failed:
            status = 1
            print(f"  FAILED {test.name} ({test.location})")
            for line in _shown(difference):
                print(f"    {line}")
    return status


def _receivers(labels: str, config: Path | None) -> str:
    """The receivers of an alert with these labels."""
    from sidecar.core.policy.labels import OWN_LABELS
    from sidecar.core.policy.routing import matching
    from sidecar.settings.file.setting import Setting
    from sidecar.settings.rules_only import labels_in, read_rules

    alerting = read_rules(config)
    found = labels_in(Setting(labels, "--labels"))
    if unknown := found.keys() - {*OWN_LABELS, *alerting.external_labels}:
        click.echo(f"flink-ha-sidecar: no alert has a label {', '.join(sorted(unknown))}", err=True)
    return ",".join(route.receiver for route in matching(alerting.route, found))


def _shown(difference: "Difference") -> Iterator[str]:
    """Expected and sent notifications, as promtool prints them."""
    from sidecar.settings.file.durations import format_duration

    if difference.missing:
        yield "expected, but not sent:"
        for expectation in difference.missing:
            yield f"  {format_duration(expectation.at)}: {_expected(expectation)}"
    if difference.unexpected:
        yield "sent, but not expected:"
        for sent in difference.unexpected:
            what = f"{sent.receiver} {sent.reason} {', '.join(sent.alerts)}: {sent.title}"
            yield f"  {format_duration(sent.at)}: {what}"


def _expected(expectation: "Expectation") -> str:
    what = f"{expectation.receiver or '(any receiver)'} {expectation.reason or '(any reason)'}"
    title = f": … {expectation.title} …" if expectation.title else ""
    return f"{what} {', '.join(sorted(expectation.alerts))}{title}"
