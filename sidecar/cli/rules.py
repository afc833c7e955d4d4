"""`rules test`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sidecar.cli.options import RULES_CONFIG, options

if TYPE_CHECKING:
    from sidecar.settings.test_file import Expectation
    from sidecar.simulation.run_test import Difference


@click.group()
def rules() -> None:
    """Try out rules and routes."""


@rules.command()
@click.argument("files", nargs=-1, metavar="[FILE]…", type=click.Path(path_type=Path))
@options(
    click.option(
        "--labels", metavar="LABELS", help="""Only print who gets an alert with these: 'alert="X",severity="info"'."""
    ),
    RULES_CONFIG,
)
def test(files: tuple[Path, ...], labels: str | None, config: Path | None) -> int:
    """Try rules on what test files say happens. Or, with --labels, print the receivers of an alert.

    A test file names its rules itself, so --config belongs to --labels. Exit status 1 where anything else was told than is expected.
    """
    if labels is not None:
        if files:
            raise click.UsageError("--labels asks about the route alone: give no test file with it")
        print(_receivers(labels, config))
        return 0
    if not files:
        raise click.UsageError("give a test file, or --labels")
    if config:
        raise click.UsageError("a test file names its rules itself, in rule_files: --config belongs to --labels")
    from sidecar.settings.test_file import read_tests

    suites = [(file, read_tests(file)) for file in files]
    from sidecar.simulation.run_test import compare, play

    status = 0
    for file, suite in suites:
        differences = [(scene, compare(scene, play(scene, suite.rules))) for scene in suite.tests]
        failed = [(scene, difference) for scene, difference in differences if difference]
        print(f"{file}: {len(differences) - len(failed)} of {len(differences)} tests passed")
        for scene, difference in failed:
            status = 1
            print(f"  FAILED {scene.name} ({scene.location})")
            for line in _shown(difference):
                print(f"    {line}")
    return status


def _receivers(labels: str, config: Path | None) -> str:
    """Who gets an alert with these labels."""
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
    """As promtool shows it: what was expected, what was told instead."""
    from sidecar.settings.file.durations import format_duration

    if difference.missing:
        yield "expected, and not told:"
        for expectation in difference.missing:
            yield f"  {format_duration(expectation.at)}: {_expected(expectation)}"
    if difference.unexpected:
        yield "told, and not expected:"
        for told in difference.unexpected:
            what = f"{told.receiver} {told.reason} {', '.join(told.alerts)}: {told.title}"
            yield f"  {format_duration(told.at)}: {what}"


def _expected(expectation: "Expectation") -> str:
    what = f"{expectation.receiver or '(anybody)'} {expectation.reason or '(for any reason)'}"
    title = f": … {expectation.title} …" if expectation.title else ""
    return f"{what} {', '.join(sorted(expectation.alerts))}{title}"
