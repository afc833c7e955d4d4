"""Whatever stands in a configuration file: settings, or one line that says what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.settings import SettingsError, load
from sidecar.settings.file.key import Key, Keys, keys_of
from sidecar.settings.loader import CONFIG
from tests.kit import hostile
from tests.kit.groups import examples

WORDS = st.sampled_from(
    [
        *(
            "3s",
            "0",
            "-1s",
            "1e9d",
            "99999999999h",
            "true",
            "auto",
            "127.0.0.1:2181",
            "zk:1,zk:2/x",
            "/",
            "..",
            "${HOME}",
            "${NONE}",
            "file:/",
        ),
        *(
            "{{ x }}",
            "{% for i in range(9) %}",
            'alert=~"(a+)+"',
            'a="b"',
            "ops",
            "json://h",
            "critical",
            "vacant",
            "9250",
            "65536",
            "24:00",
            "monday:xx",
        ),
    ]
)


def section(keys: Keys, depth: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """A section with some of the keys that it may have."""
    plain = WORDS | st.lists(WORDS, max_size=2) | hostile.values()

    def value(key: Key) -> st.SearchStrategy[Any]:
        if not key.inside or not depth:
            return plain
        below = section(keys_of(*key.inside), depth - 1)
        return plain | (st.lists(below, max_size=2) if key.many else below)

    return st.fixed_dictionaries({}, optional={name: value(declared.key) for name, declared in keys.items()})


FILES = section(CONFIG)


@given(FILES)
@settings(
    deadline=None,
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_file_is_settings_or_one_line(tmp_path: Path, document: dict[str, Any]) -> None:
    """A line that can be printed and names the file; a configuration that is accepted makes a policy."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(json.dumps(document))
    try:
        accepted = load(file, {})
        accepted.policy()
    except SettingsError as error:
        line = str(error)
    else:
        line = "accepted"
    assert line.isprintable()
    assert len(line) < 2000


@pytest.mark.parametrize("key", ["rules", "zookeeper", "external_labels", "receivers"])
@pytest.mark.parametrize(
    "nested", ["[" * hostile.DEEP + "]" * hostile.DEEP, "{a: " * hostile.DEEP + "}" * hostile.DEEP]
)
def test_a_file_nested_too_deep_is_refused_in_one_line(key: str, nested: str, tmp_path: Path) -> None:
    """It says that this is too large for a configuration."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(f"{key}: {nested}\n")
    with pytest.raises(SettingsError, match="too large for a configuration"):
        load(file, {})
