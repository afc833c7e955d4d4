"""No record is dropped because another one has its id."""

from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from sidecar.core.records import TransitionRecord
from sidecar.core.state import State
from sidecar.journal import append
from tests.kit.spools import opened
from tests.shell.test_journal import lines, scene


def granted() -> TransitionRecord:
    _, records = scene()
    return next(record for record in records if isinstance(record, TransitionRecord) and record.kind == "GRANTED")


def test_two_different_records_with_one_id_are_both_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The later one gets another id, and the log says so."""
    first = granted()
    second = replace(first, after_address="pekko.tcp://flink@another:6123/user")
    journal = opened(tmp_path)
    assert journal.commit(State(), [first])
    assert journal.commit(State(), [second])
    assert journal.commit(State(), [second])
    journal.close()
    kept = lines(tmp_path)
    assert [line["after_address"] for line in kept] == [first.after_address, second.after_address]
    assert kept[0]["id"] == first.id != kept[1]["id"]
    assert f"two different transition records have the id {first.id}" in caplog.text


def test_among_many_records_that_are_written_at_once_each_is_recorded(tmp_path: Path) -> None:
    """Also if one has the id of a stored record, and another one that of a new record."""
    first = granted()
    journal = opened(tmp_path)
    assert journal.commit(State(), [first])
    many = [replace(first, id=str(UUID(int=number))) for number in range(450)]
    new = [*many[:250], replace(first, job_id="ab" * 16), replace(many[0], job_id="cd" * 16), *many[250:]]
    assert journal.commit(State(), new)
    journal.close()
    kept = lines(tmp_path)
    assert len(kept) == 453
    assert {each.id for each in many} < {line["id"] for line in kept}
    assert {line["job_id"] for line in kept} == {first.job_id, "ab" * 16, "cd" * 16}


def test_a_record_that_is_added_from_outside_collides_no_less(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`append` keeps both records as well."""
    first = granted()
    journal = opened(tmp_path)
    assert journal.commit(State(), [first])
    journal.close()
    append(tmp_path, replace(first, job_id="ab" * 16))
    assert [line["job_id"] for line in lines(tmp_path)] == [first.job_id, "ab" * 16]
    assert "two different transition records" in caplog.text


def test_the_same_record_written_again_later_is_one_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When it was written is not part of what happened: nothing is added, and nothing is reported."""
    first = granted()
    journal = opened(tmp_path)
    assert journal.commit(State(), [first, replace(first, recorded_at=first.observed_at)])
    journal.close()
    assert len(lines(tmp_path)) == 1
    assert not caplog.text
