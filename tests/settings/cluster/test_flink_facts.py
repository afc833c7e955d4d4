"""What `ha check` reads of Flink's configuration folder: the options that are judged and the number of JobManagers, and no secret."""

from pathlib import Path

import pytest

from sidecar.core.ha.finding import UnknownFact
from sidecar.settings.cluster.flink_conf import read_flink_facts

NESTED = """\
high-availability:
  type: zookeeper
  storageDir: s3://bucket/ha
  zookeeper: {client: {tolerate-suspended-connections: true}}
yarn: {application-attempts: 3}
s3.secret-key: not-to-be-shown
"""
LINES = """\
high-availability: zookeeper
recovery.zookeeper.storageDir: hdfs:///old
high-availability.storageDir: hdfs:///new  # the current key counts
execution.target: yarn-session
s3.secret-key: not-to-be-shown
"""


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        (
            "config.yaml",
            NESTED,
            {"storage_dir": "s3://bucket/ha", "tolerate": "true", "yarn_attempts": "3", "type": "zookeeper"},
        ),
        ("flink-conf.yaml", LINES, {"storage_dir": "hdfs:///new", "target": "yarn-session", "type": "zookeeper"}),
        ("config.yaml", "", {}),
    ],
)
def test_the_options_that_are_judged(tmp_path: Path, name: str, text: str, options: dict[str, str]) -> None:
    """Of both forms of the file, by the key that Flink reads first; of all others nothing is kept."""
    (tmp_path / name).write_text(text)
    facts = read_flink_facts(tmp_path, 2)
    assert facts.options == options
    assert "not-to-be-shown" not in repr(facts)


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """No folder is given, it is empty, or the file is none of Flink's."""
    for folder in (None, tmp_path, tmp_path / "nothing"):
        options = read_flink_facts(folder, 2).options
        assert isinstance(options, UnknownFact)
        assert options.reason.isprintable()
    (tmp_path / "config.yaml").write_text("high-availability: [")
    options = read_flink_facts(tmp_path, 2).options
    assert isinstance(options, UnknownFact)
    assert str(tmp_path / "config.yaml") in options.reason


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("jm-a:8081\njm-b:8081\n", 2),
        ("# JobManagers\n\n  jm-a:8081  # first\r\njm-b:8081", 2),
        ("localhost:8081\n", None),
        ("localhost:8081\nlocalhost:8082\n", 2),
        ("", 0),
    ],
)
def test_the_job_managers_that_masters_lists(tmp_path: Path, text: str, count: int | None) -> None:
    """Without comments and empty lines. As Flink ships the file, it says nothing of a cluster."""
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "masters").write_text(text)
    assert read_flink_facts(tmp_path, 2).masters == count


def test_masters_that_says_nothing(tmp_path: Path) -> None:
    """There is no such file, nobody counts contenders, or it cannot be read: the last of these is UNKNOWN."""
    assert read_flink_facts(tmp_path, 2).masters is None
    (tmp_path / "masters").mkdir()
    assert read_flink_facts(tmp_path, None).masters is None
    unread = read_flink_facts(tmp_path, 2).masters
    assert isinstance(unread, UnknownFact)
    assert unread.reason == f"{tmp_path / 'masters'} cannot be read: Is a directory"
