"""`audit warm-up` makes an archive of Spark's classes, and whatever is wrong with one, Spark starts all the same."""

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError, warm_up
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.spark.jvm import archive_options, archive_places, options_to_read
from tests.audit.test_session import start


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where an archive may be: in a Python environment of its own, in a cache of its own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("FLINK_HA_SIDECAR_CACHE", str(tmp_path / "cache"))
    preferred, other = archive_places()
    for place in (preferred, other):
        place.parent.mkdir(parents=True)
    return preferred, other


def test_without_an_archive_the_jvm_is_given_nothing(places: tuple[Path, Path]) -> None:
    """As before the first `audit warm-up`."""
    assert archive_options() == ()


def test_the_newer_archive_is_used(places: tuple[Path, Path]) -> None:
    """The environment's may be of before an upgrade, where only the cache can be written."""
    for age, place in enumerate(places):
        place.touch()
        os.utime(place, (1e9 - age, 1e9 - age))
    assert archive_options() == options_to_read(places[0])
    os.utime(places[1])
    assert archive_options() == options_to_read(places[1])


@pytest.mark.spark
def test_an_archive_of_something_else_is_ignored(tmp_path: Path, places: tuple[Path, Path]) -> None:
    """Spark starts, without a word."""
    _, cached = places
    cached.write_bytes(b"the archive of another Java")
    done = start(
        tmp_path, "local[1]", environment={"FLINK_HA_SIDECAR_CACHE": str(cached.parent), "PYTHONSAFEPATH": "1"}
    )
    assert (done.stdout, done.stderr) == ("3 UTC\n", "")


@pytest.mark.spark
def test_an_archive_is_tried_before_it_is_used(places: tuple[Path, Path]) -> None:
    """The JVM itself says whether it accepts one."""
    places[0].write_bytes(b"the archive of another Java")
    assert not warm_up._is_accepted(places[0])


def test_a_place_that_cannot_be_written_is_passed_over(places: tuple[Path, Path]) -> None:
    """As with a read-only installation. With none at all, one line says so."""
    preferred, cached = places
    preferred.parent.rmdir()
    preferred.parent.touch()
    assert warm_up._writable_place() == cached
    cached.parent.rmdir()
    cached.parent.touch()
    with pytest.raises(
        AuditError, match=r"^cannot prepare Spark's start: neither /\S+ nor /\S+ can be written; FLINK_HA"
    ):
        warm_up._writable_place()


@pytest.mark.spark
@pytest.mark.covers("command:audit warm-up")
def test_the_commands_are_exercised_on_a_log_with_a_failover(spark: SparkSession, tmp_path: Path) -> None:
    """Else their classes would not be loaded."""
    warm_up.exercise(spark, tmp_path)
    answer = run_sql(spark, str(tmp_path / "audit"), "SELECT component, kind FROM leader_changes")
    assert [*answer.rows] == [["dispatcher", "GRANTED"]]
    assert [*run_sql(spark, str(tmp_path / "audit"), "SELECT count(*) FROM quarantine").rows] == [[0]]
