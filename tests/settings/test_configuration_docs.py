"""docs/reference/configuration.md says what the code does."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from sidecar.settings import load
from sidecar.settings.cluster import flink_conf
from sidecar.settings.file import schema
from sidecar.settings.file.schema import Keys
from tests import ROOT
from tests.kit.receivers import apprise_urls
from tests.settings.conftest import Write

DOCS = ROOT / "docs" / "reference" / "configuration.md"
TEXT = DOCS.read_text(encoding="utf-8")
SECTIONS: dict[str, Keys] = {
    "Top level": schema.CONFIG,
    "`zookeeper`": schema.ZOOKEEPER_FINDER,
    "`kubernetes`": schema.KUBERNETES,
    **{f"`zookeeper.{name}`": known for name, known in schema.ZOOKEEPER_SECURITY.items()},
    "`spool`": schema.SPOOL,
    "`ledger`": schema.LEDGER,
    "`log`": schema.LOG,
    "`http`": schema.HTTP,
    "`evidence`": schema.EVIDENCE,
    "`evidence.tls`": schema.TLS,
    "`evidence.flink_rest`": schema.FLINK_REST,
    "`ha_check`": schema.HA_CHECK,
    "`rules`": schema.RULE,
    "`route`": schema.ROUTE,
    "`inhibit_rules`": schema.INHIBIT_RULE,
    "`time_intervals`": schema.TIME_INTERVAL,
    "Times": schema.TIME_RANGE,
    "`receivers`": schema.RECEIVER,
    "`receivers.webhook`": schema.WEBHOOK,
    "`receivers.slack`": schema.SLACK,
    "`receivers.alertmanager`": schema.ALERTMANAGER,
}


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


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_is_documented_with_its_default(title: str) -> None:
    """The tables have the keys of the code, in its order, with its defaults."""
    documented = {words(key)[0]: next(iter(words(default)), None) for key, default, _ in rows(title)}
    assert list(documented.items()) == list(SECTIONS[title].items())


def test_every_override_is_documented() -> None:
    """Option and variable of each, side by side."""
    documented = [
        (words(option)[0].split()[0], words(variable)[0])
        for option, variable, _ in rows("Command line, environment, configuration")
    ]
    assert documented == [
        (f"--{name.replace('_', '-')}", schema.ENVIRONMENT_PREFIX + name.upper()) for name in schema.OVERRIDES
    ]


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
