"""Whatever stands in files that are to be replayed: what is no record is counted, the rest is replayed."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.settings.rules_only import read_rules
from sidecar.simulation.record_files import RecordFiles, ReplayError, lines
from sidecar.simulation.zookeeper_log import TransactionReplay, are_transactions
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
TRANSACTION: Mapping[str, Any] = {
    "zxid": "0x1",
    "t_ms": 1_795_161_600_000,
    "session": "0x1",
    "op": "create",
    "path": "/flink/default/leader/x/connection_info",
    "hex": "aced",
    "ephemeral": True,
    "version": 0,
    "deleted": [],
    "ops": [],
}


@st.composite
def spoiled(draw: st.DrawFn, whole: Mapping[str, Any], times: str) -> dict[str, Any]:
    """The same with a few fields missing, or with something else in them."""
    value = dict(whole)
    for key in draw(st.lists(st.sampled_from(sorted(whole)), max_size=2, unique=True)):
        if draw(st.booleans()):
            del value[key]
        else:
            value[key] = draw(TIMES if key == times else hostile.values())
    return value


def file_of(records: list[bytes], folder: Path) -> Path:
    file = folder / "records.jsonl"
    file.write_bytes(hostile.lines(records))
    return file


@given(records=st.lists(hostile.documents(spoiled(TRANSITION, "observed_at")), min_size=1, max_size=6))
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


@given(records=st.lists(hostile.documents(spoiled(TRANSACTION, "t_ms")), min_size=1, max_size=6))
@settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_lines_are_transactions_or_counted(records: list[bytes], tmp_path: Path) -> None:
    """A log of ZooKeeper's with anything in it is replayed to its end."""
    file = file_of(records, tmp_path)
    assert are_transactions([file]) in {True, False}
    replayed = TransactionReplay([file], read_rules(None), None)
    list(replayed.notifications())
    assert replayed.unreadable <= len(records)


@pytest.mark.parametrize("line", hostile.nested(dict(TRANSITION)))
def test_a_record_nested_too_deep_is_counted(line: bytes, tmp_path: Path) -> None:
    """As any other line that is none."""
    spooled = RecordFiles(partial(lines, [file_of([line], tmp_path)]))
    found = spooled.observers()
    assert [list(spooled.records(observer, each)) for observer, each in found.items()] in ([], [[]])


@pytest.mark.parametrize("line", hostile.nested(dict(TRANSACTION)))
def test_a_transaction_nested_too_deep_is_counted(line: bytes, tmp_path: Path) -> None:
    """As any other line that is none."""
    file = file_of([line], tmp_path)
    assert not are_transactions([file])
    replayed = TransactionReplay([file], read_rules(None), None)
    assert (list(replayed.notifications()), replayed.unreadable) == ([], 1)


@pytest.mark.parametrize("content", [b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\xffgarbage", b"no gzip at all"])
def test_a_segment_that_is_no_gzip_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    """With its name."""
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(content)
    with pytest.raises(ReplayError, match=rf"^{re.escape(str(file))} cannot be read: "):
        RecordFiles(partial(lines, [file])).observers()
