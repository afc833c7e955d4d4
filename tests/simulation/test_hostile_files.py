"""Whatever stands in files that are to be replayed: what is no record is counted, the rest is replayed."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.simulation.record_files import RecordFiles, ReplayError, lines
from tests.kit import hostile
from tests.kit.groups import examples

AT = "2026-11-20T08:00:00.000000Z"
TIMES = (
    st.sampled_from([AT, "2026-11-20T08:00:01Z", "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999Z", "now", ""])
    | hostile.texts()
)
SESSION = "00112233-4455-6677-8899-aabbccddeeff"
TRANSITION: Mapping[str, Any] = {
    "schema": 5,
    "type": "transition",
    "id": SESSION,
    "cluster_id": "default",
    "external_labels": {},
    "store": "zookeeper",
    "observer": "a",
    "observed_at": AT,
    "recorded_at": AT,
    "component": "dispatcher",
    "job_id": None,
    "kind": "GRANTED",
    "pattern": "null->B",
    "before_session_id": None,
    "before_address": None,
    "after_session_id": SESSION,
    "after_address": "x",
    "last_known_session_id": None,
    "last_known_address": None,
    "same_leader": False,
    "same_process": None,
    "unobserved": 0,
    "vacant_seconds": None,
    "view": "CONNECTED",
    "reason": None,
    "written_at": AT,
    "position": None,
}


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    """The same with a few fields missing, or with something else in them."""
    value = dict(TRANSITION)
    for key in draw(st.lists(st.sampled_from(sorted(TRANSITION)), max_size=2, unique=True)):
        if draw(st.booleans()):
            del value[key]
        else:
            value[key] = draw(TIMES if key == "observed_at" else hostile.values())
    return value


def file_of(records: list[bytes], folder: Path) -> Path:
    file = folder / "records.jsonl"
    file.write_bytes(hostile.lines(records))
    return file


@given(records=st.lists(hostile.documents(spoiled()), min_size=1, max_size=6))
@settings(
    deadline=None,
    max_examples=examples(80),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_lines_are_records_or_counted(records: list[bytes], tmp_path: Path) -> None:
    """Each is replayed, was replayed before, is another observer's, or is counted."""
    file = file_of(records, tmp_path)
    spooled = RecordFiles(partial(lines, [file]))
    for observer, found in spooled.observers().items():
        times = [at for at, _ in spooled.records(observer, found)]
        assert times == sorted(times)
        assert len(times) + spooled.unreadable <= len(records)


@pytest.mark.parametrize("line", hostile.nested(dict(TRANSITION)))
def test_a_record_nested_too_deep_is_counted(line: bytes, tmp_path: Path) -> None:
    """As any other line that is none."""
    spooled = RecordFiles(partial(lines, [file_of([line], tmp_path)]))
    found = spooled.observers()
    assert [list(spooled.records(observer, each)) for observer, each in found.items()] in ([], [[]])


@pytest.mark.parametrize("content", [b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\xffgarbage", b"no gzip at all"])
def test_a_segment_that_is_no_gzip_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    """With its name."""
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(content)
    with pytest.raises(ReplayError, match=rf"^{re.escape(str(file))} cannot be read: "):
        RecordFiles(partial(lines, [file])).observers()
