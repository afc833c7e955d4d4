"""YAML files: what was written, where it stood, and never too much of it."""

import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.bounds import CONFIGURATION, FLINK_CONF
from sidecar.settings.file.section import ListNode, MappingNode, ScalarNode
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.file.yaml_document import parse, read_text


def test_texts_stay_what_was_written() -> None:
    """YAML's own ideas of numbers, flags and times change nothing; every value knows its line."""
    document = parse("a: no\nb: 12:30\nc: 0123\nd: '1'\ne: [x, ~]\n", "f.yaml")
    assert document == MappingNode(
        {
            "a": ScalarNode("no", 1, plain=True),
            "b": ScalarNode("12:30", 2, plain=True),
            "c": ScalarNode("0123", 3, plain=True),
            "d": ScalarNode("1", 4, plain=False),
            "e": ListNode((ScalarNode("x", 5, plain=True), ScalarNode("~", 5, plain=True)), 5),
        },
        {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5},
        1,
    )


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "---\n", "~", "{}"])
def test_an_empty_document_has_no_keys(text: str) -> None:
    """A file of comments only is a mapping without keys."""
    assert parse(text, "f.yaml").entries == {}


@pytest.mark.parametrize("value", ["zk:2181", "[x, [y]]", "[]", "{a: 1, b: {c: 2}}", "[&inner x, *inner]", "!!str 1"])
def test_an_alias_is_what_it_names(value: str) -> None:
    """A value, list or mapping may be named once and used again."""
    entries = parse(f"a: &here {value}\nb: *here\nc: [*here]\n", "f.yaml").entries
    assert entries["b"] == entries["a"]
    assert entries["c"] == ListNode((entries["a"],), 3)


def test_where_aliases_are_shared_a_list_may_have_itself_in_it() -> None:
    """It ends there; and what few aliases make of few nodes is not counted."""
    text = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefg"))
    entries = parse(f"a: &a [*a]\n{text}", "f.yaml", FLINK_CONF, shared=True).entries
    assert entries["a"] == ListNode((ListNode((), 1),), 1)
    assert len(entries) == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 'f.yaml:3: the key "a" is here twice (first in line 1): keep one'),
        ("x:\n  a: 1\n  a: 1\n", 'f.yaml:3: the key "a" is here twice (first in line 2): keep one'),
        ("a: *b\n", "f.yaml:1: the YAML alias names no anchor before it: write the value out"),
        ("a: &a [*a]\n", "f.yaml:1: the YAML alias is inside of what it stands for: write the value out"),
        (
            "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdef")),
            "f.yaml:5: is too large for a configuration (at most 20000 values, 32 levels)",
        ),
        (
            "k0: &k0 [x]\n" + "".join(f"k{n}: &k{n} [*k{n - 1}]\n" for n in range(1, 40)),
            "f.yaml:31: is too large for a configuration (at most 20000 values, 32 levels)",
        ),
        ("a: !secret slack\n", "f.yaml:1: YAML tags are not supported: remove it"),
        ("- a\n", "f.yaml:1: must be a mapping of keys to values"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: a second document begins here: keep one"),
        ("[a]: 1\n", "f.yaml:1: a key must be a single word"),
        ("a: [1\nb: 2\n", "f.yaml:2: is not valid YAML: expected ',' or ']', but got ':'"),
        ("a: !t0ken!x b\n", "f.yaml:1: is not valid YAML: found undefined tag handle …"),
        ("a: \x00", "f.yaml: is not valid YAML: it has characters that YAML does not allow"),
        ("a: " + "[" * 40, "f.yaml:1: is too large for a configuration (at most 20000 values, 32 levels)"),
        (
            "".join(f"k{n}: v\n" for n in range(10_001)),
            "f.yaml:10000: is too large for a configuration (at most 20000 values, 32 levels)",
        ),
    ],
)
def test_what_is_no_configuration_is_refused_with_its_line(text: str, message: str) -> None:
    """Each mistake is one line that names the file and the place."""
    with pytest.raises(SettingsError) as error:
        parse(text, "f.yaml")
    assert str(error.value) == message


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    """A file of 10 MB costs neither its size in memory nor the time to parse it."""
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"a: 1\n" * 2_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(SettingsError) as error:
            read_text(huge)
        assert tracemalloc.get_traced_memory()[1] < 4 * CONFIGURATION.most_bytes
    finally:
        tracemalloc.stop()
    assert str(error.value) == f"{huge}: is larger than 256 KiB and cannot be a configuration file"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are an error with their line."""
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(SettingsError) as error:
        read_text(binary)
    assert str(error.value) == f"{binary}:2: is not UTF-8 text: save the file as UTF-8"


@pytest.mark.parametrize("name", ["nowhere.yaml", "."])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str) -> None:
    """No such file, or a folder in its place."""
    with pytest.raises(SettingsError, match=r": cannot be read: (No such file|Is a directory)"):
        read_text(tmp_path / name)


@given(st.text(alphabet=st.sampled_from("ab:-?*&!|>[]{}#%@`'\",\\ \n\t~0\x85\ufeff\U0001f600")))
def test_any_text_is_a_mapping_or_refused(text: str) -> None:
    """Whatever YAML's special characters are combined to, the answer is a mapping or a SettingsError of one line."""
    try:
        outcome: MappingNode | str = parse(text, "f.yaml")
    except SettingsError as error:
        outcome = str(error)
    assert isinstance(outcome, MappingNode) or (outcome.startswith("f.yaml:") and outcome.isprintable())
