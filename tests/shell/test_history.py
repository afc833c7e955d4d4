"""`timeline` and `explain` print what a journal holds, of a sidecar that runs, has ended, or was killed."""

import json
from pathlib import Path

import pytest

from sidecar.core.cluster.record_lines import lasted
from sidecar.core.moment import timestamp
from sidecar.core.observations import Ticked
from sidecar.core.records import StatusRecord
from tests.kit.cluster import JOB
from tests.kit.core_sidecar import Sidecar
from tests.kit.sidecar_process import COMMAND, command
from tests.kit.terminal import Terminal
from tests.shell.remembering import remember, two_failovers


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sidecar]:
    """The state folder of a sidecar that saw a failover, was cut off for 20 s, and sees the next one begin."""
    folder, sidecar = tmp_path_factory.mktemp("state"), two_failovers()
    sidecar.take(Ticked)
    remember(folder, sidecar)
    return folder, sidecar


def output_lines(*arguments: str) -> list[str]:
    """The lines that a command prints."""
    ended = command(*arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_the_timeline_is_what_was_recorded_last(remembered: tuple[Path, Sidecar]) -> None:
    """A line a record, the oldest first; as JSON, the records themselves."""
    folder, sidecar = remembered
    lines = output_lines("timeline", "--state-dir", str(folder), "--last", "5")
    assert [line[:27] for line in lines] == [record.observed_at for record in sidecar.records[-5:]]
    assert sum("REVOKED" in line for line in lines) == 4
    everything = output_lines("timeline", "--state-dir", str(folder), "--last", "1000", "--output", "json")
    assert [json.loads(line)["id"] for line in everything] == [record.id for record in sidecar.records]
    text = "\n".join(output_lines("timeline", "--state-dir", str(folder), "--last", "1000"))
    assert "blind from" in text
    assert "FlinkLeaderChanged FIRST to ops#0: delivered" in text


def test_a_failover_is_explained_with_its_facts(remembered: tuple[Path, Sidecar]) -> None:
    """By the first characters of its id: when, why, from whom to whom, for how long, how many jobs, who was notified, what happened."""
    folder, sidecar = remembered
    episode = sidecar.episodes()[0]
    lines = output_lines("explain", episode.id[:8], "--state-dir", str(folder))
    vacant = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in episode.vacant_seconds_by_component.items())
    assert episode.downtime_seconds_at_least is not None
    working = lasted(episode.downtime_seconds_at_least, episode.downtime_seconds_at_most)
    assert lines[:11] == [
        f"episode    {episode.id}",
        "cluster    default",
        f"from       {episode.opened_at} to {episode.closed_at}",
        "cause      jobmanager_lost (medium)",
        "           The JobManager's ZooKeeper session expired: it did not shut down cleanly.",
        "           Another JobManager took over.",
        (
            "           A JobManager that gets SIGTERM but halts before it has removed its addresses leaves the same facts: "
            "Flink halts after 5 s, whether or not it has finished."
        ),
        "leader     jm-a:6123 → jm-b:6123",
        f"no leader  published: {vacant}",
        f"           working: {working}",
        "jobs       1 of 1 failed over",
    ]
    statuses = [record for record in sidecar.records if isinstance(record, StatusRecord)]
    last = [record for record in statuses if record.episode_id == episode.id][-1]
    assert lines[11] == f"status     {last.status} until the next failover: {last.sentence}"
    assert lines[12].startswith("notified   ops#0: FlinkLeaderChanged FIRST delivered at 2026-")
    assert lines[13] == ""
    assert [line.split()[1] for line in lines[14:]] == ["REVOKED"] * 4 + ["GRANTED"] * 4
    (whole,) = output_lines("explain", episode.id, "--state-dir", str(folder), "--output", "json")
    assert json.loads(whole)["episode"]["cause"] == "jobmanager_lost"
    assert len(json.loads(whole)["transitions"]) == 8


def test_on_a_terminal_an_explanation_is_folded(remembered: tuple[Path, Sidecar]) -> None:
    """At its width; further lines are indented. Elsewhere each fact is one line."""
    folder, sidecar = remembered
    arguments = ["explain", sidecar.episodes()[0].id, "--state-dir", str(folder)]
    with Terminal([*COMMAND, *arguments], {"COLUMNS": "100"}) as terminal:
        lines = terminal.shows("jobs       1 of 1 failed over").splitlines()
    assert any(line.startswith(" " * 11) and line.endswith("finished.") for line in lines)
    assert max(map(len, lines)) <= 100
    assert max(map(len, output_lines(*arguments))) > 150


def test_what_is_not_over_has_the_cause_that_is_known_so_far(remembered: tuple[Path, Sidecar]) -> None:
    """That of the page and of messages. Blindness is no failover."""
    folder, sidecar = remembered
    opened = sidecar.state.clusters["default"].episode
    assert opened
    lines = output_lines("explain", opened.id, "--state-dir", str(folder))
    assert lines[1] == "cluster    default"
    assert lines[2].endswith(", in progress")
    assert lines[3] == "cause      jobmanager_lost (medium), as far as is known now"
    stated, alive = sidecar.state.clusters["default"].stated, sidecar.state.alive
    assert stated
    assert alive
    ended = f" (as of {timestamp(alive.wall)}: the sidecar has not run since)"
    assert f"status     DOWN since {timestamp(stated.since.wall)}: {stated.sentence}{ended}" in lines
    blind = sidecar.episodes()[1]
    lines = output_lines("explain", blind.id, "--state-dir", str(folder))
    assert lines[3] == "cause      observer_blind (high)"
    assert not any(line.startswith("leader") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["explain", "ffff0000"], "no known episode begins with 'ffff0000': `episodes` lists them"),
        (["explain", ""], "no known episode begins with '': `episodes` lists them"),
        (["explain", "\x1b[2J" + JOB], "begins with '\N{REPLACEMENT CHARACTER}[2J"),
    ],
)
def test_an_episode_that_is_not_there_is_one_line(
    remembered: tuple[Path, Sidecar], arguments: list[str], line: str
) -> None:
    """With what to do, and exit status 1."""
    ended = command(*arguments, "--state-dir", str(remembered[0]))
    assert ended.returncode == 1
    (said,) = ended.stderr.splitlines()
    assert line in said
    assert said.isprintable()


def test_a_folder_without_a_journal_is_one_line(tmp_path: Path) -> None:
    """Also one that is not there, or whose journal is something else."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal.db").write_text(
        "no database at all, and longer than a header of SQLite's would be" * 9
    )
    for folder, problem in (
        (tmp_path, "there is no journal in"),
        (tmp_path / "no", "there is no journal in"),
        (tmp_path / "other", "cannot read"),
    ):
        ended = command("timeline", "--state-dir", str(folder))
        assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
        assert problem in ended.stderr
