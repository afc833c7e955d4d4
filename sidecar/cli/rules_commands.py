"""`rules` and `alert`."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sidecar.cli.exit_status import DONE, FAILED
from sidecar.cli.options import CONFIG, OBSERVER, OUTPUT, PATH, RULES_CONFIG, Output, cluster_options, options, output
from sidecar.cli.printing import (
    columns,
    print_document,
    print_line,
    print_mistake,
    print_table,
    print_text,
    print_value,
)

if TYPE_CHECKING:
    from sidecar.core.policy.policy import Rule
    from sidecar.core.policy.routing import Route
    from sidecar.settings.rule_tests import NotificationInTest
    from sidecar.simulation.rule_test import Difference


@click.group()
def rules() -> None:
    """Check, show and try out rules and routes."""


@rules.command("check")
@click.argument("files", nargs=-1, metavar="[FILE]…", type=PATH)
@options(RULES_CONFIG, OUTPUT)
def check_(files: tuple[Path, ...], config: Path | None, output: Output) -> int:
    """Check rule files, each by itself, and print the rules that a sidecar would have.

    FILE is a rule file or a configuration with its rule files. No secret is read. Prints every mistake; exit status 2 if there is one.
    """
    from sidecar.settings import SettingsError
    from sidecar.settings.mistakes import check_rules, sorted_mistakes

    if files and config:
        raise click.UsageError("give files, or --config")
    status = 0
    for file in files or (config,):
        alerting, mistakes = check_rules(file)
        lines = [str(mistake) for mistake in sorted_mistakes(mistakes)]
        rules = alerting.rules if alerting and not mistakes else ()
        if output == "json":
            print_value(
                {"file": file and str(file), "mistakes": lines, "rules": [*map(_rule_values, rules)]}, "", output
            )
        for mistake in lines if output == "text" else ():
            print_mistake(mistake)
        if rules and output == "text":
            print_line(f"{file or 'the shipped rules'}: {len(rules)} rules")
            _print_rules(rules)
            _print_left_out(rules)
        status = SettingsError.exit_status if mistakes else status
    return status


@rules.command()
@options(RULES_CONFIG, output("text", "wide", "json", "yaml"))
def show(config: Path | None, output: str) -> None:
    """Print the rules, and the route tree as `amtool config routes show` does."""
    from sidecar.settings.loader import read_rules

    alerting = read_rules(config)
    if output in {"json", "yaml"}:
        print_document({"rules": [*map(_rule_values, alerting.rules)], "route": _route_values(alerting.route)}, output)
        return
    _print_rules(alerting.rules)
    print_line("")
    print_line("Routing tree:")
    print_line(".")
    for line in _tree(alerting.route, wide=output == "wide"):
        print_line(line)


def _print_rules(rules: "Sequence[Rule]") -> None:
    names = ("alert", "on", "for", "severity")
    values = [_rule_values(rule) for rule in rules]
    print_table(
        [[*map(str.upper, names)], *([row[name] for name in names] for row in values)] if values else [["no rule"]]
    )


def _print_left_out(rules: "Sequence[Rule]") -> None:
    from sidecar.settings.loader import read_rules

    own = {rule.alert for rule in rules}
    if left_out := [rule.alert for rule in read_rules(None).rules if rule.alert not in own]:
        names = ", ".join(left_out)
        print_text(f"not among them, of the shipped rules: {names} (shipped_rules: keep adds them)", width=columns())


def _rule_values(rule: "Rule") -> dict[str, str]:
    """The rule as a configuration has it."""
    from sidecar.core.policy.triggers import TRIGGERS, Trigger
    from sidecar.settings.file.durations import format_duration

    lasts = format_duration(rule.hold_for) if rule.hold_for else ""
    if rule.on is Trigger.EPISODES:
        lasts = f"{rule.count} within {format_duration(rule.within)}"
    elif rule.on is Trigger.DRILL_OVERDUE:
        lasts = f"after {format_duration(rule.age)}"
    elif rule.within:
        lasts = f"within {format_duration(rule.within)}"
    return {
        "alert": rule.alert,
        "on": rule.on.value,
        "for": lasts,
        "severity": rule.severity.value,
        "needs": TRIGGERS[rule.on].needs or "",
    }


def _tree(route: "Route", before: str = "", branch: str = "└── ", *, wide: bool) -> Iterator[str]:
    """The route tree, in amtool's words; `wide`: with how each route groups and repeats."""
    from sidecar.settings.file.durations import format_duration

    matchers = sorted(route.matchers, key=lambda matcher: (matcher.label, matcher.value))
    slug = f"{{{','.join(map(str, matchers))}}}" if matchers else "default-route"
    slug += f"{'  continue: true' if route.continues else ''}  receiver: {route.receiver or '(none)'}"
    if wide:
        slug += f"  group_by: [{', '.join(route.group_by)}]"
        for name in ("group_wait", "group_interval", "repeat_interval"):
            slug += f"  {name}: {format_duration(getattr(route, name))}"
    yield f"{before}{branch}{slug}"
    below = before + ("    " if branch == "└── " else "│   ")
    for place, child in enumerate(route.routes):
        last = place == len(route.routes) - 1
        yield from _tree(child, below, "└── " if last else "├── ", wide=wide)


def _route_values(route: "Route") -> dict[str, Any]:
    from sidecar.settings.file.durations import format_duration

    return {
        "receiver": route.receiver,
        "matchers": [*map(str, route.matchers)],
        "continue": route.continues,
        "group_by": [*route.group_by],
        **{name: format_duration(getattr(route, name)) for name in ("group_wait", "group_interval", "repeat_interval")},
        "mute_time_intervals": [interval.name for interval in route.mute],
        "active_time_intervals": [interval.name for interval in route.active],
        "routes": [*map(_route_values, route.routes)],
    }


@rules.command()
@click.argument("files", nargs=-1, metavar="[FILE]…", type=PATH)
@options(
    click.option(
        "--labels",
        metavar="LABELS",
        help="""Only print the receivers of an alert with these: 'alert="X",severity="info"'.""",
    ),
    RULES_CONFIG,
    OUTPUT,
)
def test(files: tuple[Path, ...], labels: str | None, config: Path | None, output: Output) -> int:
    """Run test files of rules. Or, with --labels, print the receivers of an alert.

    A test file names its own rules, so --config is for --labels. Exit status 1 if notifications differ from the expected ones.
    """
    if labels is not None:
        if files:
            raise click.UsageError("--labels is about the route alone: give no test file with it")
        receivers = _receivers(labels, config)
        print_value({"receivers": receivers}, ",".join(receivers), output)
        return 0
    if not files:
        raise click.UsageError("give a test file, or --labels")
    if config:
        raise click.UsageError("a test file names its own rules, in rule_files: --config is for --labels")
    from sidecar.settings.rule_tests import read_tests

    suites = [(file, read_tests(file)) for file in files]
    from sidecar.simulation.rule_test import compare, play

    status = 0
    for file, suite in suites:
        differences = [(test, compare(test, play(test, suite.rules))) for test in suite.tests]
        failed = [(test, [*_difference_lines(difference)]) for test, difference in differences if difference]
        status = 1 if failed else status
        value = {
            "file": str(file),
            "tests": len(differences),
            "failed": [{"name": test.name, "location": test.location, "lines": lines} for test, lines in failed],
        }
        passed = len(differences) - len(failed)
        print_value(value, f"{file}: {passed} of {len(differences)} tests passed", output)
        for test, lines in failed if output == "text" else ():
            print_line(f"  FAILED {test.name} ({test.location})")
            for line in lines:
                print_line(f"    {line}")
    return status


def _receivers(labels: str, config: Path | None) -> list[str]:
    """The receivers of an alert with these labels."""
    from sidecar.core.policy.routing import OWN_LABELS, matching
    from sidecar.settings.file.setting import Setting
    from sidecar.settings.loader import labels_in, read_rules

    alerting = read_rules(config)
    values = labels_in(Setting(labels, "--labels"))
    if unknown := values.keys() - {*OWN_LABELS, *alerting.external_labels}:
        click.echo(f"flink-ha-sidecar: no alert has a label {', '.join(sorted(unknown))}", err=True)
    return [route.receiver for route in matching(alerting.route, values)]


def _difference_lines(difference: "Difference") -> Iterator[str]:
    """Expected and sent notifications, as promtool prints them."""
    from sidecar.settings.file.durations import format_duration

    if difference.missing:
        yield "expected, but not sent:"
        for expected in difference.missing:
            title = f": … {expected.title} …" if expected.title else ""
            yield f"  {format_duration(expected.at)}: {_notification(expected)}{title}"
    if difference.unexpected:
        yield "sent, but not expected:"
        for sent in difference.unexpected:
            yield f"  {format_duration(sent.at)}: {_notification(sent)}: {sent.title}"


def _notification(shown: "NotificationInTest") -> str:
    return f"{shown.receiver or '(any receiver)'} {shown.reason or '(any reason)'} {', '.join(shown.alerts)}"


@click.group()
def alert() -> None:
    """Try out notifications."""


@alert.command()
@options(
    CONFIG,
    click.option("--receiver", "receivers", metavar="NAME", multiple=True, help="Only this one; may be repeated."),
    OBSERVER,
    OUTPUT,
    cluster_options,
)
def send_test(config: Path | None, receivers: tuple[str, ...], output: Output, **overrides: Any) -> int:
    """Send a test message to every receiver.

    The message says that it is a test. Prints name, outcome and reason of each destination; exit status 1 if one failed.
    """
    from sidecar.core.observations import DeliveryOutcome
    from sidecar.runtime.clock import Clock
    from sidecar.settings import load
    from sidecar.sinks.notify.send_test import send_test

    status = DONE
    for name, outcome, detail in send_test(load(config, overrides), receivers, Clock()):
        line = f"{name}  {outcome}{f': {detail}' if detail else ''}"
        print_value({"destination": name, "outcome": outcome.value, "detail": detail}, line, output)
        status = status if outcome is DeliveryOutcome.DELIVERED else FAILED
    return status


@alert.command()
@options(CONFIG, OBSERVER, OUTPUT, cluster_options)
def preview(config: Path | None, output: Output, **overrides: Any) -> None:
    """Print what a failover would look like at each receiver.

    The failover is simulated: no leader for 40 s, another 15 s until two jobs run again. Sends nothing.
    """
    from sidecar.app.checking import identified
    from sidecar.settings import load
    from sidecar.simulation.preview import preview_lines, previews

    settings = identified(load(config, overrides))
    messages = [*previews(settings.policy(), settings.endpoints())]
    for message in messages:
        if output == "json":
            print_value(message, "", output)
        else:
            for line in preview_lines(message):
                print_line(line)
    if not messages:
        print("flink-ha-sidecar: no receiver gets a message about this failover", file=sys.stderr)
