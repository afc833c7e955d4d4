"""Documents: what a page names exists (links, headings, files, tests, programs, commands), and the code's own lists are in them whole."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from sidecar.cli.main import cli
from sidecar.core.alerting.alerts import Reason
from sidecar.core.cluster import advice
from sidecar.core.failover.causes import Cause
from sidecar.core.ha.flink_checks import FLINK_CHECKS
from sidecar.core.ha.results import KUBERNETES_CHECKS
from sidecar.core.ha.zookeeper_checks import ZOOKEEPER_CHECKS
from sidecar.core.leadership.transitions import Kind
from sidecar.core.policy.triggers import Trigger
from sidecar.core.views.snapshot import OUTCOMES
from sidecar.settings import load
from tests import ROOT
from tests.kit.metric_families import families, sample_names

PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")})
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"(?<![\w/.$}-])(?:sidecar|tests|docs|deploy|rules|scripts|requirements|\.ci)/[\w./*-]*[\w*/]")
_MADE = re.compile(r"deploy/examples/[a-z-]+/receivers\.env")
"""Files that the reader of deploy/README.md makes."""
_WRITTEN = {f"reference/{name}.md" for name in ("apprise-services", "audit-schema", "messages")}
"""Pages of docs/ that programs write."""
_GENERATED = re.compile(r"<!-- python -m .*?<!-- end of the table -->", re.DOTALL)
"""A part of a page that a program writes."""
_MOST_WORDS = 40_000
_SOURCES = ("*.py", "*.sql", "*.j2", "*.yaml", "*.tpl", "*.txt", "*.sh")


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """By its path from the top of the repository, or from the page's folder."""
    named = {path for path in _PATH.findall(page.read_text(encoding="utf-8")) if not _MADE.fullmatch(path)}
    assert [path for path in sorted(named) if not any([*ROOT.glob(path), *page.parent.glob(path)])] == []


def test_every_page_that_the_code_names_exists() -> None:
    """In comments, docstrings, messages and manifests; a decision by its number alone."""
    rooms = [ROOT / room for room in ("sidecar", "tests", "rules", "deploy", "scripts")]
    sources = [
        ROOT / "Makefile",
        ROOT / "Dockerfile",
        *(file for room in rooms for end in _SOURCES for file in room.rglob(end)),
    ]
    missing = []
    for source in sources:
        for path, anchor in re.findall(
            r"(?<![\w/.-])(docs/[\w./-]*\w)(?:#([\w-]+))?", source.read_text(encoding="utf-8")
        ):
            page = next(iter(ROOT.glob(f"{path}*")), None)
            if page is None or (anchor and anchor not in anchors(page)):
                missing.append(f"{source.relative_to(ROOT)}: {path}#{anchor}")
    assert missing == []


def test_every_page_is_in_the_index() -> None:
    """Of docs/, in docs/README.md; each decision in the index of decisions."""
    documents = {page for page in (ROOT / "docs").rglob("*") if page.suffix in {".md", ".sql", ".json"}}
    indexes = (ROOT / "docs" / "README.md", ROOT / "docs" / "project" / "adr" / "README.md")
    linked = {
        (index.parent / path).resolve()
        for index in indexes
        for path, _ in _LINK.findall(index.read_text(encoding="utf-8"))
    }
    assert documents - linked - {*indexes[:1]} == set()


def test_the_documents_stay_short() -> None:
    """Without what programs write and the project's own pages: who adds a page shortens another."""
    documents = {str(page.relative_to(ROOT / "docs")): page for page in (ROOT / "docs").rglob("*.md")}
    read = [page for name, page in documents.items() if name not in _WRITTEN and not name.startswith("project/")]
    assert documents.keys() > _WRITTEN
    texts = (_GENERATED.sub("", page.read_text(encoding="utf-8")) for page in read)
    words = (word for text in texts for word in text.split() if any(map(str.isalnum, word)))
    assert sum(1 for _ in words) <= _MOST_WORDS


def test_a_decision_is_at_most_a_page() -> None:
    """Of 40 lines; one that is folded into another has no page of its own."""
    decisions = {page: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "project" / "adr").glob("0*.md")}
    lengths = {page.name: len(text.splitlines()) for page, text in decisions.items()}
    assert {name: length for name, length in lengths.items() if not 1 < length <= 40} == {}
    assert [page.name for page, text in decisions.items() if "(folded into [" in text] == []


@cache
def names_of_tests() -> frozenset[str]:
    """Functions and files."""
    files = [*(ROOT / "tests").rglob("test_*.py")]
    functions = (
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef)
    )
    return frozenset([*functions, *(file.stem for file in files)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    """By its whole name, so that it can be searched for."""
    assert {*re.findall(r"\btest_\w+…?", page.read_text(encoding="utf-8"))} - names_of_tests() == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_program_that_a_page_names_exists(page: Path) -> None:
    """Targets of `make`, and modules that Python runs."""
    text = page.read_text(encoding="utf-8")
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    assert {*re.findall(r"(?:`|^ *(?:\$ )?)make ([a-z-]+)", text, re.MULTILINE)} - targets == set()
    modules = {*re.findall(r"python3? -m ((?:tests|sidecar)[\w.]*)", text)}
    assert [
        name
        for name in sorted(modules)
        if not any(ROOT.glob(f"{name.replace('.', '/')}{end}") for end in ("/__main__.py", ".py"))
    ] == []


def first_column(page: str, header: str) -> list[str]:
    """The code in the first cells of the table with that header."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text.partition(f"\n| {header} |")[2].partition("\n\n")[0]
    return [code for row in table.splitlines()[2:] for code in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.mark.parametrize(
    ("page", "header", "values"),
    [
        ("explanation/episodes.md", "kind", [*Kind]),
        ("explanation/episodes.md", "cause", [*Cause]),
        ("reference/notifications.md", "reason", [*Reason]),
        ("reference/ha-checks.md", "check in ZooKeeper", [*ZOOKEEPER_CHECKS]),
        ("reference/ha-checks.md", "check of the configuration", [*FLINK_CHECKS]),
        ("reference/ha-checks.md", "check in Kubernetes", [*KUBERNETES_CHECKS]),
        ("reference/notifications.md", "outcome", [outcome for outcome in OUTCOMES if outcome != "queued"]),
    ],
)
def test_every_value_is_documented(page: str, header: str, values: list[str]) -> None:
    """Once, and nothing else is."""
    assert sorted(first_column(page, header)) == sorted(map(str, values))


def test_every_alert_and_every_cause_has_a_section() -> None:
    """docs/how-to/troubleshooting.md has one for each, which the page links to; and each shipped rule is one of these alerts."""
    sections = anchors(ROOT / "docs" / "how-to" / "troubleshooting.md")
    assert {advice.anchor(trigger) for trigger in Trigger} | set(map(str, Cause)) <= sections
    shipped = load(ROOT / "rules" / "default.yaml", {"zookeeper": "zk"}).rules
    assert {rule.alert.lower() for rule in shipped} <= sections
    first = {rule.on: rule.alert for rule in reversed(shipped)}
    assert {trigger: advice.anchor(trigger) for trigger in first} == {on: name.lower() for on, name in first.items()}


def test_every_metric_is_documented() -> None:
    """docs/reference/metrics.md has each one's name, type and labels, and no others."""
    exposed = set()
    for family in families():
        labels = vars(family)["_labelnames"] or [*family.samples[0].labels] if family.type != "histogram" else []
        name = family.name if family.type == "histogram" else sample_names(family)[0]
        exposed.add((name, family.type, tuple(labels)))
    rows = re.findall(
        r"^\| `(flink_ha_\w+)` \| (\w+) \|(.*?)\|",
        (ROOT / "docs" / "reference" / "metrics.md").read_text(),
        re.MULTILINE,
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
