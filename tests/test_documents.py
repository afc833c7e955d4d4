"""Documents: every link leads somewhere, and the list of metrics is that of the code."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from sidecar.cli.main import cli
from sidecar.core.alerting.alerts import Reason
from sidecar.core.cluster.causes import Cause
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.views.snapshot import OUTCOMES
from tests import ROOT
from tests.kit.metric_families import families, sample_names

PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")})
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """Files and folders of the repository, and headings of its pages."""
    missing = []
    for path, anchor in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(f"{path}#{anchor}")
    assert missing == []


def first_column(page: str, header: str) -> list[str]:
    """The code in the first cells of the table with that header."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text.partition(f"\n| {header} |")[2].partition("\n\n")[0]
    return [code for row in table.splitlines()[2:] for code in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.mark.parametrize(
    ("page", "header", "values"),
    [
        ("leader-changes.md", "kind", [*Kind]),
        ("episodes.md", "cause", [*Cause]),
        ("notifications.md", "reason", [*Reason]),
        ("notifications.md", "outcome", [outcome for outcome in OUTCOMES if outcome != "queued"]),
    ],
)
def test_every_value_is_documented(page: str, header: str, values: list[str]) -> None:
    """Once, and nothing else is."""
    assert sorted(first_column(page, header)) == sorted(map(str, values))


def test_every_metric_is_documented() -> None:
    """docs/metrics.md has each one's name, type and labels, and no others."""
    exposed = set()
    for family in families():
        labels = vars(family)["_labelnames"] or [*family.samples[0].labels] if family.type != "histogram" else []
        name = family.name if family.type == "histogram" else sample_names(family)[0]
        exposed.add((name, family.type, tuple(labels)))
    rows = re.findall(
        r"^\| `(flink_ha_\w+)` \| (\w+) \|(.*?)\|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE
    )
    assert {(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == exposed


def command_lines(page: Path) -> Iterator[str]:
    """Each call of the command in a page: in a block, or between backticks. Neither its comment nor what the shell does with its output."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"(?:^ *(?:\$ )?|`|-- |bin/)flink-ha-sidecar +([a-z][^`\n]*)", text, re.MULTILINE):
        yield re.split(r" +# | [|>] ", line)[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_is_one(page: Path) -> None:
    """Each sub-command exists and has the options that a page gives it."""
    wrong = []
    for line in command_lines(page):
        command: click.Command = cli
        words = shlex.split(line)
        while words and isinstance(command, click.Group) and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        wrong += [f"{line}: {word}" for word in words if word.startswith("--") and word not in known]
        wrong += [line] if isinstance(command, click.Group) else []
    assert wrong == []


def test_every_command_is_documented() -> None:
    """Each one stands in a page as it is typed."""
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    def commands(group: click.Group, name: str) -> Iterator[str]:
        for word, command in group.commands.items():
            yield from commands(command, f"{name}{word} ") if isinstance(command, click.Group) else [f"{name}{word}"]

    assert [name for name in commands(cli, "") if not re.search(rf"(flink-ha-sidecar +|`){name}\b", pages)] == []
