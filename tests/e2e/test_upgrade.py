"""What builds called 0.1.0 left behind works in this version: journal, spool, audit log, ledger, handover, silences.

Each was written by the oldest build that has it, run from its own source (tests/fixtures/old_build.py).
"""

import gzip
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sidecar.core.alerting import silence_document
from sidecar.core.moment import SECOND
from sidecar.lab.receivers import HttpReceiver
from sidecar.lab.zookeeper import ZooKeeper
from tests.fixtures.old_build import BUILDS, FOLDER
from tests.kit.leaders import Leaders
from tests.kit.sidecar_process import Sidecar, command
from tests.kit.waiting import wait_for


@pytest.fixture
def sidecar(zookeeper: ZooKeeper, people: HttpReceiver, tmp_path: Path) -> Iterator[Sidecar]:
    """This version, in the folder and with the configuration of the old build, whose receiver answers now."""
    upgraded = Sidecar(
        tmp_path / "new", f"zookeeper: {{quorum: '{zookeeper.address}'}}", [people.url], observer="jm-old"
    )
    yield upgraded
    if upgraded.process:
        upgraded.stop()


def written(build: str) -> list[dict[str, Any]]:
    """The records that the build has sealed."""
    files = sorted((FOLDER / build / "spool").rglob("*.gz"))
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def restore_journal(build: str, folder: Path) -> None:
    """The folder as the build left it."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / "journal.db")) as journal:
        journal.executescript((FOLDER / build / "journal.sql").read_text())
        journal.commit()


def restore_store(build: str, leaders: Leaders) -> None:
    """What the build shared with other sidecars."""
    for path, text in json.loads((FOLDER / build / "store.json").read_text()).items():
        leaders.client.create(path, text.encode(), makepath=True)


_ROWS = """
SELECT 'transition' AS type, count(DISTINCT id) AS n, count(*) AS rows FROM transitions
UNION ALL SELECT 'episode', count(DISTINCT id), count(*) FROM episodes
UNION ALL SELECT 'notification', count(DISTINCT id), count(*) FROM notifications
"""
ROUTELESS = [["a", "row", "of", "kind", "group"]]
"""The builds of the first day had no routes. When their groups were last notified is forgotten: at worst one message more."""


def assert_continued(sidecar: Sidecar, people: HttpReceiver, left_out: Sequence[object] = ()) -> None:
    """The failover since then was recorded and notified once, from the leader that the old build saw; the log has no other complaint."""

    def changes() -> list[str | None]:
        return [
            change["last_known_address"]
            for change in sidecar.transitions()
            if "jm-00003" in (change["after_address"] or "")
        ]

    wait_for("the changes", lambda: len(changes()) == 4)
    assert ["jm-00002" in (address or "") for address in changes()] == [True] * 4

    def messages() -> list[str]:
        return [message.title for message in people.received if "jm-00002:6123 → jm-00003:6123" in message.body]

    wait_for("the message", messages)
    assert sidecar.stop() == 0
    assert len(messages()) == 1
    complaints = [line for line in sidecar.log.read_text().splitlines() if " WARNING " in line or " ERROR " in line]
    assert [line.partition("cannot be decoded")[0].split()[-5:] for line in complaints] == [*left_out]


@pytest.mark.parametrize("build", BUILDS)
def test_an_old_journal_is_continued(build: str, sidecar: Sidecar, people: HttpReceiver, leaders: Leaders) -> None:
    """The leader has changed since then; nothing is lost, neither records nor the message that was waiting."""
    restore_journal(build, sidecar.state)
    before = sidecar.records()
    attempts = [each for each in before if each["type"] == "notification"]
    (waiting,) = {attempt["fingerprint"] for attempt in attempts}
    assert {attempt["outcome"] for attempt in attempts} == {"queued", "failed"}
    leaders.term = 2
    leaders.fail_over()
    sidecar.start()
    sidecar.wait_ready()
    assert_continued(sidecar, people, ROUTELESS if build == "first-day" else ())
    records = sidecar.records()
    assert records[: len(before)] == before
    outcomes = [record["outcome"] for record in records if record.get("fingerprint") == waiting]
    assert outcomes[len(attempts)] == "delivered"
    assert [path.name for path in sidecar.state.iterdir() if "unreadable" in path.name] == []


@pytest.mark.parametrize("build", ["handover", "silences"])
def test_an_old_handover_is_continued(build: str, sidecar: Sidecar, people: HttpReceiver, leaders: Leaders) -> None:
    """By a pod with an empty folder; also the ledger that lies beside it, in which the old failover is marked."""
    restore_store(build, leaders)
    leaders.term = 2
    leaders.fail_over()
    sidecar.start()
    sidecar.wait_ready()
    assert_continued(sidecar, people)
    assert "continuing from the handover of sidecar jm-old" in sidecar.log.read_text()


def test_an_old_ledger_is_shared(sidecar: Sidecar, people: HttpReceiver, leaders: Leaders) -> None:
    """It is read and written again in place: the next failover is claimed in it."""
    restore_store("one-voice", leaders)
    (path,) = json.loads((FOLDER / "one-voice" / "store.json").read_text())
    sidecar.start()
    sidecar.wait_ready()
    leaders.fail_over()
    wait_for("the message", lambda: [message for message in people.received if "failed over" in message.body])
    wait_for("the ledger", lambda: leaders.client.exists(path).version > 0)
    assert 'flink_ha_ledger_up{cluster_id="default"} 1.0' in sidecar.get("/metrics")[1]


def test_an_old_silence_is_listed(zookeeper: ZooKeeper, leaders: Leaders) -> None:
    """With its author and comment as long as it lasts, and a day longer; after that too, the document is one that can be read."""
    restore_store("silences", leaders)
    (path,) = (
        path for path in json.loads((FOLDER / "silences" / "store.json").read_text()) if path.endswith("/silences")
    )
    data, _ = leaders.client.get(path)
    found, problems = silence_document.read(data, 30 * 86_400 * SECOND)
    assert [(each.author, each.comment) for each in found.values()] == [("tests", "by an old build")]
    assert problems == []
    listed = command("silence", "list", "--zookeeper", zookeeper.address, "--expired")
    assert (listed.returncode, listed.stderr) == (0, "")


@pytest.mark.spark
def test_an_old_audit_log_goes_on(tmp_path: Path) -> None:
    """Its rows are read, verified and compacted with those of newer builds, each record once."""
    log = shutil.copytree(FOLDER / "first-day" / "audit", tmp_path / "audit")
    options = ("--audit", str(log), "--master", "local[2]")
    for build in BUILDS:
        spool = shutil.copytree(FOLDER / build / "spool", tmp_path / build)
        ended = command("audit", "ingest", "--spool", str(spool), *options)
        assert ended.returncode == 0, ended.stderr
        assert "quarantine" not in ended.stdout
    assert command("audit", "verify", *options).returncode == 0
    assert command("audit", "compact", "--before", "2100-01-01", *options).returncode == 0
    shown = command("audit", "sql", "--output", "json", _ROWS, *options)
    assert shown.returncode == 0, shown.stderr
    rows = {row["type"]: (row["n"], row["rows"]) for row in map(json.loads, shown.stdout.splitlines())}
    records = {each["id"]: each["type"] for build in BUILDS for each in written(build)}
    counts = Counter(records.values())
    assert rows == {kind: (counts[kind], counts[kind]) for kind in rows}
