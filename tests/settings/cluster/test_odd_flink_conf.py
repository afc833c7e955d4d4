"""Odd files of Flink's own configuration: what Flink runs with is read as Flink reads it, and costs a bounded time."""

import logging
from itertools import pairwise
from pathlib import Path

import pytest

from sidecar.core.bounds import FLINK_CONF
from sidecar.settings import SettingsError, load_cluster
from sidecar.settings.cluster.flink_conf import LEGACY, STANDARD, plain_options, read_configuration, read_flink_facts
from tests.kit.flink_options import flink_options
from tests.lab.distribution import flink_home
from tests.lab.java import find_java
from tests.settings.conftest import in_zookeeper

HA = "high-availability: {type: zookeeper, zookeeper: {quorum: 'zk:2181'}}\n"
LINES = "high-availability: zookeeper\nhigh-availability.zookeeper.quorum: zk:2181\n"
TENS = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdef"))
TWOS = "".join(f"{b}: &{b} {{p: *{a}, q: *{a}}}\n" for a, b in pairwise("abcdefgh"))

READ = {
    "anchors and a merge key": f"m: &m {{size: 1g}}\njobmanager: {{memory: *m}}\ntaskmanager:\n  <<: {{slots: 2}}\n{HA}",
    "a merge key, which Flink does not merge": f"b: &b {{cluster-id: /b}}\nhigh-availability.x:\n  <<: *b\n{HA}",
    "an alias within high availability": "q: &q {quorum: 'zk:2181'}\nhigh-availability: {type: zookeeper, zookeeper: *q}\n",
    "aliases in lists": f"a: &a [x, y]\nb: [*a, z]\nc: *a\n{HA}",
    "an alias as a key": f"a: &a b\n*a : 1\n{HA}",
    "an anchor of a key": f"&a b: 1\nc: *a\n{HA}",
    "an anchor that is set again": "a: &a 1\nb: &a zk:2181\nhigh-availability.type: zookeeper\nhigh-availability.zookeeper.quorum: *a\n",
    "a list within itself": f"a: &a [*a]\n{HA}",
    "a billion laughs in lists": f"a: &a [x, x]\n{TENS}{HA}",
    "laughs in mappings": f"a: &a {{p: 1}}\n{TWOS}{HA}",
    "sixty aliases of one value": "a: &a 1\n" + "".join(f"b{n}: *a\n" for n in range(60)) + HA,
    "sixty levels of lists": f"a: {'[' * 60}{']' * 60}\n{HA}",
    "sixty levels of mappings": f"a: {'{b: ' * 60}1{'}' * 60}\n{HA}",
    "twelve thousand keys": "".join(f"k{n}: v\n" for n in range(12_000)) + HA,
    "half a megabyte of comments": "# xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n" * 15_000 + HA,
    "a text that looks like a number": f"{HA}high-availability.cluster-id: !!str 0123\n",
    "CRLF": HA.replace("\n", "\r\n"),
    "CR": f"a: 1\n{HA}".replace("\n", "\r"),
    "the end of a document": f"{HA}...\n",
    "a version": f"%YAML 1.1\n---\n{HA}",
    "tags of YAML": f"a: !!int '7'\nb: !!set {{x, y}}\n{HA}",
    "a null key": f"~: 1\n{HA}",
    "emoji": f"a: \U0001f600\n{HA}",
}
ENCODED = {"UTF-8 with a mark": HA.encode("utf-8-sig"), "UTF-16": HA.encode("utf-16"), "UTF-32": HA.encode("utf-32")}
LEGACY_READ = {
    "a comment in GBK": f"# 高可用配置\n{LINES}".encode("gbk"),
    "a comment in Latin-1": f"# é\n{LINES}".encode("latin-1"),
    "a value in Latin-1": f"{LINES}high-availability.cluster-id: caf\xe9\n".encode("latin-1"),
    "a cut character": f"{LINES}high-availability.cluster-id: ".encode() + b"\xe4\xbdx\n",
    "CRLF": LINES.replace("\n", "\r\n").encode(),
    "CR": LINES.replace("\n", "\r").encode(),
    "next line, form feed and line separator end no line": f"a: 1\x85b: 2\x0cc: 3\u2028d: 4\n{LINES}".encode(),
    "tabs": f"a:\t1\n\t{LINES}high-availability.cluster-id: \t/a\t\n".encode(),
    "zero bytes": f"a: 1\0\n{LINES}\0".encode(),
    "comments": f"{LINES}high-availability.cluster-id: /a#b\n".encode(),
    "colons": f"{LINES}high-availability.cluster-id: a: b\n".encode(),
    "twice": f"high-availability: none\n{LINES}high-availability: \n".encode(),
    "YAML, of which Flink knows nothing here": f"a:\n  b: 1\n- x: 2\n&x c: *y\n{{d: 1}}\n{LINES}".encode(),
    "half a megabyte of comments": ("# xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n" * 15_000 + LINES).encode(),
    "no newline at the end": LINES.rstrip().encode(),
}
REFUSED = {
    "Latin-1": f"# é\n{HA}".encode("latin-1"),
    "GBK": f"# 高可用\n{HA}".encode("gbk"),
    "UTF-16 without a mark": HA.encode("utf-16-le"),
    "a tab that indents": f"a:\n\tb: 1\n{HA}".encode(),
    "a key twice": f"a: {{b: 1, b: 2}}\n{HA}".encode(),
    "merge keys twice": f"a:\n  <<: {{x: 1}}\n  <<: {{y: 2}}\n{HA}".encode(),
    "a second document": f"{HA}---\na: 1\n".encode(),
    "an alias of nothing": f"a: *b\n{HA}".encode(),
    "a tag of somebody": f"a: !secret b\n{HA}".encode(),
    "a control character": f"a: \x01\n{HA}".encode(),
    "a list": b"- a\n",
}
STANDARD_READ = {name: text.encode() for name, text in READ.items()} | ENCODED
FILES = [
    *((STANDARD, name, content) for name, content in STANDARD_READ.items()),
    *((LEGACY, name, content) for name, content in LEGACY_READ.items()),
]


def write(folder: Path, file: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(content)
    return folder


def options(path: Path) -> dict[str, str]:
    """Those of high availability."""
    read = plain_options(path, read_configuration(path))
    return {key: value for key, value in read.items() if key.startswith("high-availability")}


@pytest.mark.parametrize(("file", "name", "content"), FILES, ids=[f"{file}: {name}" for file, name, _ in FILES])
def test_what_flink_runs_with_is_read(tmp_path: Path, file: str, name: str, content: bytes) -> None:
    """Whatever stands in keys that do not concern high availability: the cluster is found, and `ha check` has its facts."""
    write(tmp_path / name, file, content)
    tmp_path /= name
    assert in_zookeeper(load_cluster({"flink_conf": tmp_path})).quorum == "zk:2181"
    facts = read_flink_facts(tmp_path, None).options
    assert isinstance(facts, dict)


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED.keys())
def test_what_flink_refuses_is_refused(tmp_path: Path, content: bytes) -> None:
    """In one line: no Flink runs with this config.yaml."""
    with pytest.raises(SettingsError) as error:
        load_cluster({"flink_conf": write(tmp_path, STANDARD, content)})
    assert str(error.value).isprintable()


@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_flink_reads_them_so(tmp_path: Path, version: str) -> None:
    """Flink's own reader has the same values for high availability, and refuses what is refused here."""
    files = [each for each in FILES if each[0] == STANDARD or version.startswith("1.")]
    folders = [write(tmp_path / f"{number}", file, content) for number, (file, _, content) in enumerate(files)]
    refused = [write(tmp_path / f"refused-{number}", STANDARD, text) for number, text in enumerate(REFUSED.values())]
    answers = flink_options(find_java(), flink_home(version, print), tmp_path, [*folders, *refused])
    theirs = {
        f"{file}: {name}": {key: value for key, value in answer.items() if key.startswith("high-availability")}
        if isinstance(answer, dict)
        else answer
        for (file, name, _), answer in zip(files, answers, strict=False)
    }
    ours = {f"{file}: {name}": options(folder / file) for (file, name, _), folder in zip(files, folders, strict=True)}
    assert ours == theirs
    assert [name for name, answer in zip(REFUSED, answers[len(files) :], strict=True) if isinstance(answer, dict)] == []


def test_what_is_not_utf8_in_flink_conf_yaml_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It names the first line, and shows nothing of it."""
    write(tmp_path, LEGACY, f"{LINES}# é\n# é\n".encode("latin-1"))
    with caplog.at_level(logging.WARNING):
        load_cluster({"flink_conf": tmp_path})
    assert caplog.messages == [
        f"{tmp_path}/{LEGACY}:3: is not UTF-8 text, read as Flink reads it: with \ufffd for what is not"
    ]


@pytest.mark.parametrize("leaf", ["1", "", "[]", "{}"])
def test_what_aliases_make_of_a_small_file_is_bounded(tmp_path: Path, leaf: str) -> None:
    """Also where nothing of it is an option. Flink's memory would not suffice."""
    names = [f"k{number}" for number in range(40)]
    laughs = "".join(f"{b}: &{b} {{p: *{a}, q: *{a}}}\n" for a, b in pairwise(names))
    with pytest.raises(SettingsError) as error:
        load_cluster({"flink_conf": write(tmp_path, STANDARD, f"k0: &k0 {{p: {leaf}}}\n{laughs}{HA}".encode())})
    most = f"its YAML aliases stand for more than {FLINK_CONF.most_items} keys: write fewer"
    assert str(error.value) == f"{tmp_path}/{STANDARD}: {most}"


def test_levels_made_of_aliases_are_bounded(tmp_path: Path) -> None:
    """As those that are written."""
    chain = "".join(f"k{n}: &k{n} {{a: *k{n - 1}}}\n" for n in range(1, 2000))
    with pytest.raises(SettingsError, match="is too large for a configuration"):
        load_cluster({"flink_conf": write(tmp_path, STANDARD, f"k0: &k0 {{a: 1}}\n{chain}{HA}".encode())})
