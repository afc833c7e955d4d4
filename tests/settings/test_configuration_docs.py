"""docs/reference/configuration.md says what the code does."""

import importlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sidecar.settings import SettingsError, load, model
from sidecar.settings.cluster import flink_conf
from sidecar.settings.file.key import keys_of
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import ENVIRONMENT_PREFIX, OVERRIDES
from sidecar.settings.file.yaml_document import parse
from tests import ROOT
from tests.kit.configuration_page import page, sections, table
from tests.kit.receivers import apprise_urls
from tests.settings.conftest import Write

DOCS = ROOT / "docs" / "reference" / "configuration.md"
TEXT = DOCS.read_text(encoding="utf-8")
WITHOUT_TABLE = re.compile(r"clusters\b|time_intervals\.time_intervals\.times")
"""Sections that the table of another one explains."""


def section(title: str) -> str:
    """What stands under a heading."""
    headings = [*re.finditer(r"^#+ (.*)$", TEXT, re.MULTILINE)]
    spans = {here[1]: TEXT[here.end() : after.start()] for here, after in pairwise(headings)}
    return spans.get(title, TEXT[headings[-1].end() :])


def words(cell: str) -> list[str]:
    """The code in a cell."""
    return re.findall(r"`([^`]*)`", cell)


def rows(title: str) -> list[list[str]]:
    """The cells of a section's table."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_tables_are_those_of_the_code() -> None:
    """`python -m tests.kit.configuration_page` writes them; every section has one."""
    assert page(TEXT) == TEXT
    headings = {heading.strip("`") for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)}
    missing = {heading.strip("`") for heading, _ in sections()} - headings
    assert all(WITHOUT_TABLE.match(heading) for heading in missing)


def test_a_setting_is_declared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field in one file is read with its bounds and its default, is a known key, and has its row on the page."""
    source = Path(model.__file__).read_text(encoding="utf-8")
    field = '    slots: Annotated[int, Key(Integer(1, 9), "3")]\n    """how many are served at once"""\n'
    (tmp_path / "invented.py").write_text(source.replace("    host: Annotated[", f"{field}    host: Annotated["))
    monkeypatch.syspath_prepend(tmp_path)
    struct = importlib.import_module("invented").HttpSettings
    keys = keys_of(struct)

    def read(text: str) -> Any:
        return Section(parse(text, "FILE"), keys, "FILE").make(struct).slots

    assert (read(""), read("slots: 9")) == (3, 9)
    for text, message in (
        ("slots: 10", 'slots: "10" is not a whole number from 1 to 9'),
        ("slot: 1", 'did you mean "slots"?'),
    ):
        with pytest.raises(SettingsError, match=re.escape(message)):
            read(text)
    assert "| `slots` | 1 to 9 | `3` | how many are served at once |\n" in table(keys)


def test_every_override_is_documented() -> None:
    """Option and variable of each, side by side."""
    documented = [
        (words(option)[0].split()[0], words(variable)[0])
        for option, variable, _ in rows("Command line, environment, configuration")
    ]
    assert documented == [(f"--{name.replace('_', '-')}", ENVIRONMENT_PREFIX + name.upper()) for name in OVERRIDES]


def test_flinks_keys_are_documented_in_flinks_order() -> None:
    """The current key first, then its deprecated spellings as Flink asks them."""
    # The tables themselves: what is documented is what is read.
    assert [(*words(key), *words(older)) for key, older, _ in rows("Flink's own configuration")] == [
        *(option.keys for option in (flink_conf._TYPE, *flink_conf._ZOOKEEPER.values())),
        (flink_conf._AUTHORIZATION,),
        *(option.keys for option in flink_conf._KUBERNETES.values()),
    ]


def test_the_smallest_configuration_works(write: Write, monkeypatch: pytest.MonkeyPatch, conf_dir: Path) -> None:
    """The first example is a whole configuration."""
    example = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[0]
    monkeypatch.setenv("SLACK_URL", "slack://a/b/c")
    monkeypatch.setenv("FLINK_CONF_DIR", str(conf_dir))
    assert apprise_urls(load(write(example), {})) == {"ops#0": "slack://a/b/c"}


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/quick-start-zookeeper.md"])
def test_the_configuration_of_a_first_set_up_works(
    page: str, write: Write, monkeypatch: pytest.MonkeyPatch, conf_dir: Path, tmp_path: Path
) -> None:
    """As it stands there, with another folder of Flink's configuration."""
    example = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)[0]
    monkeypatch.setenv("SLACK_URL", "slack://a/b/c")
    (tmp_path / "slack-url").write_text("slack://a/b/c\n")
    settings = load(write(re.sub(r"(?<=flink_conf_dir: )\S+", str(conf_dir), example)), {})
    assert apprise_urls(settings) == {"ops#0": "slack://a/b/c"}
