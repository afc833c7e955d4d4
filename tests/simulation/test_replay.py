"""`replay`: what is notified, and what of the files cannot be read."""

import gzip
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.moment import timestamp
from sidecar.core.policy.policy import Store
from sidecar.core.records import AnyRecord, Contention, EpisodeRecord, TransitionRecord
from sidecar.settings.rules_only import read_rules
from sidecar.simulation.record_files import ReplayError
from sidecar.simulation.replay import replay_of
from sidecar.simulation.simulator import TICK
from tests.kit.cluster import CLUSTER, DISPATCHER, THE_JOB, A, B
from tests.kit.core_sidecar import Sidecar, leased
from tests.kit.fake_flink import Flink

RULES = read_rules(None)


def lines(records: list[AnyRecord]) -> bytes:
    return b"".join(json.encode(record) + b"\n" for record in records)


def failover() -> Sidecar:
    """A sidecar that has seen one failover, and ended."""
    flink = Flink().submit().elect(A)
    sidecar = Sidecar(flink, RULES.policy_for("sidecar-0", {CLUSTER: Store.ZOOKEEPER})).connects().waits(60)
    flink.vacate()
    sidecar.sees_changes().waits(2)
    flink.elect(B)
    sidecar.sees_changes().waits(60)
    sidecar.stops()
    return sidecar


def notifications(*files: Path, observer: str | None = None) -> list[tuple[str, str, str]]:
    replay = replay_of(files, RULES, observer)
    return [(notification.receiver, notification.reason, notification.title) for notification in replay.notifications()]


def test_a_planned_failover_is_replayed_as_one(tmp_path: Path) -> None:
    """By what the record of the episode says, which comes last: the rules know it from the first transition on."""
    sidecar = failover()
    records = [
        replace(record, planned=True, cause="planned_upgrade") if isinstance(record, EpisodeRecord) else record
        for record in sidecar.records
    ]
    (tmp_path / "a.jsonl").write_bytes(lines(records))
    [(receiver, reason, title)] = notifications(tmp_path / "a.jsonl")
    assert (receiver, reason) == ("ops", "FIRST")
    assert title == "[UNCHECKED] default: jm-b leads; whether jobs run is not known (no REST)"


FAILOVER = (
    "ops",
    "FIRST",
    "[UNCHECKED] default: jm-b leads; whether jobs run is not known (no REST)",
)


def test_segments_are_replayed_as_one(tmp_path: Path) -> None:
    """Cut anywhere, packed or not, and the same one twice: one failover."""
    records = failover().records
    for cut in range(0, len(records), 5):
        first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
        first.write_bytes(gzip.compress(lines(records[:cut])))
        second.write_bytes(lines(records[cut:]))
        assert notifications(first, first, second, second) == [FAILOVER]


def test_lines_that_are_no_records_are_counted(tmp_path: Path) -> None:
    """Junk, other types, fields that no sidecar writes, times that cannot be: left out and counted, and the rest is replayed."""
    records = failover().records
    moved = next(record for record in records if isinstance(record, TransitionRecord))
    bad = [
        b"junk",
        b'{"type": "transition"}',
        b'{"type": "evidence", "observer": "sidecar-0", "cluster_id": "default", "observed_at": "2026-11-20T08:00:00Z"}',
        *(
            json.encode(replace(moved, **changed))
            for changed in (
                {"component": "scheduler"},
                {"kind": "MOVED"},
                {"after_session_id": "nobody"},
                {"observed_at": "soon"},
                {"observed_at": "2026-11-20T08:00:00"},
                {"observed_at": "9999-11-20T08:00:00.000000Z"},
                {"store": "etcd"},
            )
        ),
        b"\xff" * (3 << 19),
    ]
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines(records[:3]) + b"\n".join(bad) + b"\n\n" + lines(records[3:]))
    replay = replay_of([file], RULES)
    assert [(notice.receiver, notice.reason, notice.title) for notice in replay.notifications()] == [FAILOVER]
    assert replay.unreadable == len(bad) + 1  # the longest one is read in two pieces


def test_of_several_sidecars_one_is_replayed(tmp_path: Path) -> None:
    """They saw the same: who is to be replayed has to be said, and has to be there."""
    records = failover().records
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines(records) + lines([replace(record, observer="sidecar-1") for record in records]))
    with pytest.raises(ReplayError, match="records of sidecar-0, sidecar-1: choose one with --observer"):
        notifications(file)
    assert notifications(file, observer="sidecar-1") == [FAILOVER]
    with pytest.raises(ReplayError, match="no records of sidecar-2, but of sidecar-0, sidecar-1"):
        notifications(file, observer="sidecar-2")


def test_what_cannot_be_replayed_is_said(tmp_path: Path) -> None:
    """No file, no records in it, a segment that is torn."""
    with pytest.raises(ReplayError, match=r"no\.jsonl cannot be read: No such file or directory"):
        notifications(tmp_path / "no.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ReplayError, match="there are no records in these files"):
        notifications(tmp_path / "empty.jsonl")
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(gzip.compress(lines(failover().records))[:-20])
    with pytest.raises(ReplayError, match=r"torn\.jsonl\.gz cannot be read"):
        notifications(torn)


def test_a_standby_that_left_is_notified_by_the_count_of_contenders(tmp_path: Path) -> None:
    """Their names are not recorded, their number is."""
    records = failover().records[:-1]
    last = records[-1]
    counts = [
        Contention(
            id=f"contention at {at}",
            cluster_id=CLUSTER,
            external_labels={},
            store="zookeeper",
            observer="sidecar-0",
            observed_at=type(last.observed_at)(at),
            component=None,
            contenders=number,
            contenders_before=before,
        )
        for number, before, at in (
            (2, None, "2026-11-20T08:10:00.000000Z"),
            (1, 2, "2026-11-20T08:20:00.000000Z"),
            (2, 1, "2026-11-20T08:40:00.000000Z"),
        )
    ]
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines([*records, *counts]))
    assert notifications(file)[1:] == [
        ("ops", "FIRST", "[DEGRADED] default: jm-b leads, no standby is left"),
        ("ops", "RESOLVED", "[UNCHECKED] default: jm-b leads; whether jobs run is not known (no REST)"),
    ]


def test_a_split_is_replayed_with_its_end(tmp_path: Path) -> None:
    """That it is over is not recorded: it is so when nobody has come back for long enough."""
    flink = Flink().submit().elect(A)
    sidecar = Sidecar(flink, RULES.policy_for("sidecar-0", {CLUSTER: Store.ZOOKEEPER})).connects().waits(60)
    for leader in (B, A, B, A):
        flink.elect(leader, DISPATCHER)
        sidecar.sees_changes().waits(1)
    sidecar.waits(200)
    sidecar.stops()
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines(sidecar.records))
    assert notifications(file) == [(d.receiver, d.reason.value, d.title) for d in sidecar.sent]
    assert [(d.alert, d.reason.value) for d in sidecar.sent] == [
        ("FlinkSplitLeadership", "FIRST"),
        ("FlinkSplitLeadership", "RESOLVED"),
    ]


def test_what_is_out_of_sight_for_weeks_is_not_said_again(tmp_path: Path) -> None:
    """A vacancy that was notified, then nothing to be seen: that alone is notified, again and again, and what holds when it is over."""
    flink = Flink().submit().elect(A)
    sidecar = Sidecar(flink, RULES.policy_for("sidecar-0", {CLUSTER: Store.ZOOKEEPER})).connects().waits(60)
    flink.vacate(DISPATCHER)
    sidecar.sees_changes().waits(60).is_cut_off().waits(100 * 3600, tick=60).connects().waits(60)
    sidecar.stops()
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines(sidecar.records))
    assert notifications(file) == [(d.receiver, d.reason.value, d.title) for d in sidecar.sent]
    assert len(sidecar.sent) > 20


def test_records_of_a_cluster_in_kubernetes(tmp_path: Path) -> None:
    """A leader whose lease runs out, and another one: the same message as it was."""
    flink, sidecar = leased(policy=RULES.policy_for("sidecar-0", {CLUSTER: Store.KUBERNETES}))
    sidecar.hears_nothing(30)
    flink.elect(B)
    sidecar.sees_changes()
    sidecar.watches(60)
    sidecar.stops()
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines(sidecar.records))
    assert notifications(file) == [(d.receiver, d.reason.value, d.title) for d in sidecar.sent]
    assert len(sidecar.sent) == 1


def test_a_job_that_left_alone_left_when_it_was_observed(tmp_path: Path) -> None:
    """Its REVOKED is recorded 5 s later, behind what happened meanwhile: the alert is dated as it was by the sidecar itself."""
    flink = Flink().submit().elect(A)
    sidecar = Sidecar(flink, RULES.policy_for("sidecar-0", {CLUSTER: Store.ZOOKEEPER})).connects().waits(60)
    flink.vacate(THE_JOB)
    sidecar.sees_changes().waits(4)
    flink.submit("ab" * 16).elect(A, ComponentId(Component.JOB, "ab" * 16))
    sidecar.sees_changes().waits(60).stops()
    assert [transition.kind for transition in sidecar.transitions()[-2:]] == [Kind.GRANTED, Kind.REVOKED]
    (message,) = sidecar.sent
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines(sidecar.records))
    (again,) = replay_of([file], RULES).notifications()
    assert again.title == message.title
    late = datetime.fromisoformat(again.at) - datetime.fromisoformat(timestamp(message.queued_at.wall))
    assert abs(late) <= timedelta(microseconds=TICK)
