"""`annotate`: an operator's note is recorded once, beside a sidecar that runs or does not, and reaches the segments."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from sidecar.core.cluster.status import Status
from sidecar.core.journal_rows import FORMAT
from sidecar.core.moment import SECOND, Moment, Timestamp
from sidecar.core.observations import Observation, PictureTaken
from sidecar.core.pictures import Picture
from sidecar.core.records import SCHEMA, Annotation, StatusRecord
from sidecar.core.views.explain import annotation, find, note
from sidecar.journal import FILE, JournalReader, append
from sidecar.runtime.clock import Clock
from tests.core.cluster.pictures import TASK_MANAGERS, after, rest_address
from tests.core.failover.test_acceptance import restored
from tests.core.failover.test_assessment import cluster
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import Sidecar
from tests.kit.sidecar_process import command
from tests.kit.spools import opened, spool
from tests.kit.waiting import wait_for
from tests.shell.remembering import remember, two_failovers
from tests.shell.test_loop import House


@pytest.fixture
def remembered(tmp_path: Path) -> Sidecar:
    """A sidecar that has ended; its journal is in `tmp_path`."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar)
    return sidecar


def annotations(folder: Path) -> list[Annotation]:
    """What the journal in `folder` has of notes, the latest first."""
    with closing(JournalReader(folder)) as journal:
        return journal.latest(Annotation, 100)


def annotate(folder: Path, episode: str, reason: str, *more: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the command."""
    ended = command("annotate", episode, "--reason", reason, "--state-dir", str(folder), *more)
    return ended.returncode, ended.stdout, ended.stderr


def test_a_note_says_that_a_failover_was_planned(remembered: Sidecar, tmp_path: Path) -> None:
    """Where nothing could know it: in the record, and in words. A note without it does not say that it was not."""
    episode = remembered.episodes()[0]
    assert annotate(tmp_path, episode.id, "Kernel update.", "--planned") == (0, f"noted on episode {episode.id}\n", "")
    assert annotate(tmp_path, episode.id, "See OPS-2.")[0] == 0
    assert [noted.planned for noted in annotations(tmp_path)] == [None, True]
    explained = command("explain", episode.id, "--state-dir", str(tmp_path)).stdout
    assert ": planned\n           Kernel update." in explained
    assert "note, planned: Kernel update." in command("timeline", "--state-dir", str(tmp_path)).stdout


def test_a_note_is_a_record_of_its_own(remembered: Sidecar, tmp_path: Path) -> None:
    """With the envelope of its episode; line breaks become spaces. What is said again is another note."""
    episode = remembered.episodes()[0]
    for _ in range(2):
        result = annotate(tmp_path, episode.id[:8], "  Drained by mistake.\nSee\tOPS-1. ", "--author", "Ada")
        assert result == (0, f"noted on episode {episode.id}\n", "")
    second, first = annotations(tmp_path)
    assert first.id != second.id
    assert first.observed_at < second.observed_at
    for noted in (first, second):
        assert (noted.episode_id, noted.reason, noted.author) == (episode.id, "Drained by mistake. See OPS-1.", "Ada")
        assert (noted.schema_version, noted.recorded_at) == (SCHEMA, noted.observed_at)
        for field in ("cluster_id", "external_labels", "store", "observer"):
            assert getattr(noted, field) == getattr(episode, field)


def test_explain_and_timeline_tell_it(remembered: Sidecar, tmp_path: Path) -> None:
    """With who and when; also of a failover that is not over, and without a name."""
    opened = remembered.state.clusters["default"].episode
    assert opened
    long = "All nodes of rack 7 lost power. " * 10
    assert annotate(tmp_path, opened.id, long)[0] == 0
    (noted,) = annotations(tmp_path)
    explained = command("explain", opened.id, "--state-dir", str(tmp_path)).stdout.splitlines()
    assert f"note       {noted.observed_at}" in explained
    begin = explained.index(f"note       {noted.observed_at}")
    until = explained.index("")
    assert " ".join(line.strip() for line in explained[begin + 1 : until]) == long.strip()
    assert max(map(len, explained[begin:until])) <= 111
    (line,) = command("timeline", "--last", "1", "--state-dir", str(tmp_path)).stdout.splitlines()
    assert line.startswith(f"{noted.observed_at} note: All nodes of rack 7 lost power.")
    assert line.endswith(f"[{opened.id}]")
    (data,) = command("explain", opened.id, "--state-dir", str(tmp_path), "--output", "json").stdout.splitlines()
    assert [each["id"] for each in json.loads(data)["annotations"]] == [noted.id]


@pytest.mark.parametrize(
    ("reason", "more", "problem"),
    [
        ("", (), "the reason of a note is empty: 1 to 2000 characters are needed"),
        (" \n\t ", (), "the reason of a note is empty: 1 to 2000 characters are needed"),
        ("x" * 2001, (), "the reason of a note has 2001 characters: at most 2000 are recorded"),
        ("a\x1b[2Jb", (), "the reason of a note holds the control character U+001B: only printable text is recorded"),
        ("a\u202eb", (), "the reason of a note holds the control character U+202E: only printable text is recorded"),
        ("a", ("--author", "\x07"), "the author of a note holds the control character U+0007: only printable"),
        ("a", ("--author", "x" * 101), "the author of a note has 101 characters: at most 100 are recorded"),
    ],
)
def test_what_is_no_printable_text_is_refused(
    remembered: Sidecar, tmp_path: Path, reason: str, more: tuple[str, ...], problem: str
) -> None:
    """In one line; nothing is recorded."""
    status, out, said = annotate(tmp_path, remembered.episodes()[0].id, reason, *more)
    assert (status, out, len(said.splitlines())) == (2, "", 1)
    assert problem in said
    assert annotations(tmp_path) == []


def test_where_there_is_nothing_to_note_it_on_is_one_line(remembered: Sidecar, tmp_path: Path) -> None:
    """No such episode, no journal, or one of another version."""
    for folder, episode, problem in (
        (tmp_path, "ffffffff", "no known episode begins with 'ffffffff'"),
        (tmp_path / "no", "ffffffff", "there is no journal in"),
    ):
        status, out, said = annotate(folder, episode, "x")
        assert (status, out, len(said.splitlines())) == (1, "", 1)
        assert problem in said
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("PRAGMA user_version = 99")
    status, out, said = annotate(tmp_path, remembered.episodes()[0].id, "x")
    assert (status, len(said.splitlines())) == (1, 1)
    assert f"its format is 99, this version writes {FORMAT}" in said


def test_it_is_sealed_by_the_sidecar_that_runs(tmp_path: Path) -> None:
    """Another process adds it: it goes into a segment, the journal's figures stay right, and later records follow it."""
    sidecar = two_failovers()
    *earlier, last = sidecar.records
    journal = opened(tmp_path)
    running = spool(tmp_path, roll_interval=0.0)

    def all_sealed() -> bool:
        assert journal.commit(sidecar.state, [], running.sealed)
        return journal.unsealed == 0

    try:
        assert journal.commit(sidecar.state, earlier)
        running.start()
        wait_for("the first segments", all_sealed)
        before = running.sealed
        assert annotate(tmp_path, sidecar.episodes()[0].id, "Drained.")[0] == 0
        wait_for("the segment of the note", lambda: running.sealed > before)
        assert all_sealed()
        assert journal.commit(sidecar.state, [last])
        assert journal.unsealed == 1
        wait_for("the last segment", all_sealed)
    finally:
        running.stop()
        journal.close()
    segments = sorted((tmp_path / "spool" / "jm-0").iterdir())
    lines = [json.loads(line) for path in segments for line in gzip.decompress(path.read_bytes()).splitlines()]
    (noted,) = annotations(tmp_path)
    assert [line["id"] for line in lines] == [*(record.id for record in earlier), noted.id, last.id]


def test_it_waits_for_one_who_writes(remembered: Sidecar, tmp_path: Path) -> None:
    """The owner's transaction ends first; the note is not lost, and not there twice."""
    episode = remembered.episodes()[0].id
    noted = annotation(
        find(remembered.records, episode), note("Drained.", None), Timestamp("2026-11-20T12:00:00.000000Z")
    )
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as owner:
        owner.execute("BEGIN IMMEDIATE")
        adding = Thread(target=append, args=(tmp_path, noted))
        adding.start()
        adding.join(0.3)
        assert adding.is_alive()
        owner.execute("COMMIT")
        adding.join(5)
    append(tmp_path, noted)
    assert annotations(tmp_path) == [noted]


@pytest.mark.parametrize("runs", [True, False])
def test_what_was_lost_is_said_until_it_is_annotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, runs: bool
) -> None:
    """By the sidecar that runs, and never by one that is started after the note was written; the note is recorded before."""
    sidecar = restored(None)()
    episode, assessed, now = cluster(sidecar).last_episode, cluster(sidecar).assessed, Clock(sidecar.state.alive)()
    assert episode
    assert assessed
    lately = replace(assessed, at=Moment(now.steady - SECOND, now.wall - SECOND))
    clusters = {CLUSTER: replace(cluster(sidecar), assessed=lately)}
    sidecar.state = replace(sidecar.state, clusters=clusters)
    remember(tmp_path, sidecar)
    if not runs:
        assert annotate(tmp_path, episode.id, "Restored by hand.")[0] == 0
    house = House(tmp_path, sidecar.policy)
    house.loop.start()
    try:
        is_read(house, sidecar, monkeypatch)
        if runs:
            wait_for("the loss", lambda: status_in(house) == Status.LOST)
            assert annotate(tmp_path, episode.id, "Restored by hand.")[0] == 0
        wait_for("the end", lambda: status_in(house) == Status.OK)
    finally:
        house.close()
    with closing(JournalReader(tmp_path)) as journal:
        records = list(journal.remembered())
    noted = next(number for number, record in enumerate(records) if isinstance(record, Annotation))
    later = [record.status for record in records[noted:] if isinstance(record, StatusRecord)]
    assert [status for status in later if status != Status.BLIND][-1] == Status.OK
    assert Status.LOST not in later


def is_read(house: House, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is shown all that there is now: leaders, and a job that runs."""
    shown: list[Observation] = []
    monkeypatch.setattr(sidecar, "observe", shown.append)
    sidecar.connects()
    house.bring(shown)
    wait_for("the leaders", lambda: house.loop.snapshot.ready)
    now, leader = house.clock(), rest_address(sidecar)
    picture = Picture(now.wall, leader, (after(sidecar, None, 43),), task_managers=TASK_MANAGERS)
    house.loop.observe(PictureTaken(now, CLUSTER, leader, picture))
    wait_for("the picture", lambda: house.loop.snapshot.state.clusters[CLUSTER].picture == picture)


def status_in(house: House) -> str | None:
    stated = house.loop.snapshot.state.clusters[CLUSTER].stated
    return stated.status.value if stated else None
