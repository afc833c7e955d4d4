"""What a sidecar sent for pictures of Flink's REST server, `replay` sends for the records of what was judged by them."""

from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from sidecar.core.cluster.recovery.recovery_state import KEPT
from sidecar.core.moment import SECOND
from sidecar.core.pictures import Job
from sidecar.core.policy.policy import Rule, Severity, Source, Store, Trigger
from sidecar.core.records import AnyRecord, Death, EpisodeRecord, Recovery
from sidecar.settings.rules_only import read_rules
from sidecar.simulation.replay import replay_of
from tests.core.cluster.pictures import after, before, job, shows
from tests.kit.cluster import CLUSTER, A, B
from tests.kit.core_sidecar import Sidecar
from tests.kit.fake_flink import Flink
from tests.kit.outcomes import death

RULES = read_rules(None)
RECOVERED = Rule("FlinkRecovered", Trigger.RECOVERED, Severity.INFO)
"""No shipped rule notifies it."""
RULES_OF_RECOVERY = {
    *("FlinkJobMissing", "FlinkJobResurrected", "FlinkStateLost", "FlinkStateOlder", "FlinkNotRecovered"),
    RECOVERED.alert,
}
OTHER = job("shipping", job_id="b" * 32)
FAILED = job("billing", job_id="c" * 32, state="FAILED")


def failed_over(*others: Job) -> Sidecar:
    """A led, and its REST server showed the job and these others; now B leads."""
    flink = Flink().submit().elect(A)
    policy = RULES.policy_for("sidecar-0", {CLUSTER: Store.ZOOKEEPER})
    policy = replace(policy, evidence=frozenset({Source.FLINK_REST}), rules=(*policy.rules, RECOVERED))
    sidecar = Sidecar(flink, policy).connects().waits(60)
    shows(sidecar, before(sidecar), *others)
    sidecar.waits(1)
    flink.vacate()
    sidecar.sees_changes().waits(2)
    flink.elect(B)
    return sidecar.sees_changes().waits(15)  # the failover itself has been notified


def shows_for(sidecar: Sidecar, seconds: int, *others: Job, restored: int | None = 41) -> Sidecar:
    """The new leader's REST server shows the job and these others, FAILED as running again."""
    for _ in range(seconds):
        running = after(sidecar, restored, 42 if restored else 1)
        again = (replace(running, id=FAILED.id, name=FAILED.name) if each is FAILED else each for each in others)
        shows(sidecar, running, *again)
        sidecar.waits(1)
    return sidecar


def sent_again(records: list[AnyRecord], folder: Path) -> list[tuple[str, str, str]]:
    file = folder / "records.jsonl"
    file.write_bytes(b"".join(json.encode(record) + b"\n" for record in records))
    replay = replay_of([file], replace(RULES, rules=(*RULES.rules, RECOVERED)))
    sent = [(alert, notice.reason, notice.title) for notice in replay.notifications() for alert in notice.alerts]
    assert replay.unreadable == 0
    return [each for each in sent if each[0] in RULES_OF_RECOVERY]


def sent(sidecar: Sidecar) -> list[tuple[str, str, str]]:
    return [(d.alert, d.reason.value, d.title) for d in sidecar.sent if d.alert in RULES_OF_RECOVERY]


@pytest.mark.parametrize(
    ("restored", "others", "shown", "alerts"),
    [
        (41, (), (), {"FlinkRecovered"}),
        (40, (), (), {"FlinkStateOlder"}),
        (None, (), (), {"FlinkStateLost"}),
        (41, (FAILED,), (FAILED,), {"FlinkJobResurrected"}),
        (41, (OTHER,), (replace(OTHER, running_tasks=1, started_at=9),), {"FlinkNotRecovered"}),
    ],
    ids=["recovered", "older", "nothing", "resurrected", "not running"],
)
def test_a_replay_sends_what_the_sidecar_sent(
    restored: int | None, others: tuple[Job, ...], shown: tuple[Job, ...], alerts: set[str], tmp_path: Path
) -> None:
    """The same alerts with the same titles, each once."""
    sidecar = shows_for(failed_over(*others), 40, *shown, restored=restored)
    sidecar.waits(900).stops()
    assert {alert for alert, _, _ in sent(sidecar)} == alerts
    assert sorted(sent_again(sidecar.records, tmp_path)) == sorted(sent(sidecar))


def test_what_is_missing_is_forgotten_after_a_day(tmp_path: Path) -> None:
    """As by the sidecar: no record says that such an alert is over."""
    sidecar = shows_for(failed_over(FAILED), 40, FAILED)
    sidecar.waits(KEPT // SECOND + 900, tick=60).stops()
    found = sent_again(sidecar.records, tmp_path)
    assert {"FIRST", "RESOLVED"} <= {reason for _, reason, _ in found}
    assert {*found} == {*sent(sidecar)}


def test_a_planned_failover_fires_nothing(tmp_path: Path) -> None:
    """By what the record of the episode says, as it may leave jobs out."""
    sidecar = shows_for(failed_over(), 40, restored=None)
    sidecar.waits(900).stops()
    planned = [
        replace(record, planned=True, cause="planned_upgrade") if isinstance(record, EpisodeRecord) else record
        for record in sidecar.records
    ]
    assert sent_again(planned, tmp_path) == []


def test_records_in_words_of_another_version_are_counted(tmp_path: Path) -> None:
    """A reason of a death, and a time, that no sidecar writes."""
    sidecar = shows_for(failed_over(), 40)
    sidecar.stops()
    episode = next(record for record in sidecar.records if isinstance(record, EpisodeRecord))
    bad = [
        replace(death(episode), observer="sidecar-0", reason="struck_by_lightning"),
        *(replace(record, led_at="soon") for record in sidecar.records if isinstance(record, Recovery)),
    ]
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"".join(json.encode(record) + b"\n" for record in [*sidecar.records, *bad]))
    replay = replay_of([file], RULES)
    assert any(isinstance(each, Death) for each in bad)
    assert list(replay.notifications())
    assert replay.unreadable == len(bad)
