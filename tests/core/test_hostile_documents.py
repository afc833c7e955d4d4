"""Whatever others write where the core reads: a value of ours or a reason, within bounds, and never an exception."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import json
from msgspec.structs import replace

from sidecar.core.alerting import claims, ledger_document, silence_document
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.claims import ClaimStanding
from sidecar.core.alerting.ledger_document import MOST_BYTES, Claim, ForeignLedgerError, Ledger
from sidecar.core.alerting.outbox import Delivery, Part
from sidecar.core.flink.configmaps import LeaderElectionRecord, decode_leader, decode_lease, lapses_after
from sidecar.core.flink.leadership import LeaderInformation, Unreadable
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ConfigMapObserved,
    ConnectionState,
    Observation,
    SnapshotCompleted,
    Started,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy.policy import Severity, Store
from sidecar.core.state import Append, State
from tests.kit import hostile
from tests.kit.cluster import CLUSTER, JOB, START
from tests.kit.core_sidecar import POLICY
from tests.kit.core_witness import Witness
from tests.kit.groups import examples
from tests.kit.slow_silences import slow_silences

CONFIG_MAP = f"{CLUSTER}-cluster-config-map"
LEADER = "org.apache.flink.k8s.leader."
SESSION = str(UUID(int=7))

# -- the ledger --------------------------------------------------------------------------------------------------------

DELIVERY = Delivery(
    title="title",
    body="body",
    severity=Severity.CRITICAL,
    reason=Reason.FIRST,
    id="id",
    destination="ops#0",
    receiver="ops",
    cluster_id=CLUSTER,
    alert="FlinkNoLeader",
    fingerprint="group",
    queued_at=Moment(START, START),
    next_at=0,
    parts=(Part("alert", began=START),),
    repeat_interval=3600 * SECOND,
)
CLAIMS = hostile.objects(
    {"by": hostile.texts(), "token": hostile.texts(), "about": st.lists(hostile.texts(), max_size=3)}
)
ENTRIES = hostile.objects(
    {
        "told": st.dictionaries(st.just("alert") | hostile.texts(), hostile.numbers(), max_size=3),
        "at": hostile.numbers(),
        "by": hostile.texts(),
        "claim": st.none() | CLAIMS,
        "unsure": st.lists(st.just("alert") | hostile.texts(), max_size=3),
        "changed_at": hostile.numbers(),
    }
)
LEDGERS = hostile.objects(
    {
        "format": st.just(1) | hostile.numbers(),
        "entries": st.dictionaries(st.just(claims.name_of(DELIVERY)) | hostile.texts(), ENTRIES, max_size=3),
        "began": hostile.numbers(),
    }
)


@given(hostile.documents(LEDGERS))
@settings(max_examples=examples(60))
def test_any_ledger_is_read_used_and_written_again(content: bytes) -> None:
    """What cannot be read is an empty ledger, and a newer version's is refused; what can is used like any other, and what is written stays
    within bounds.
    """
    try:
        read = ledger_document.read(content)
    except ForeignLedgerError:
        return
    assert isinstance(read, Ledger)
    assert claims.standing(read, DELIVERY, "us") in ClaimStanding
    assert claims.repeats(read, DELIVERY) in {True, False}
    assert claims.may_have_arrived(read, DELIVERY) in {True, False}
    assert isinstance(claims.oldest_news(read, DELIVERY), int)
    ours = Claim("us", "1")
    claimed = claims.claimed(ledger_document.begun(read, START), DELIVERY, ours, START)
    sent = claims.marked(claimed, DELIVERY, "us", START)
    for changed in (read, claimed, sent, claims.released(claimed, DELIVERY, ours, START, unsure=True)):
        assert len(ledger_document.written(changed, START)) <= MOST_BYTES


@pytest.mark.parametrize(
    "content", hostile.nested({"format": 1, "entries": {"a": {"claim": {"by": "b", "token": "c"}}}, "began": 1})
)
def test_a_ledger_nested_too_deep_is_none(content: bytes) -> None:
    """As any other that cannot be read."""
    assert ledger_document.read(content) == Ledger()


# -- ConfigMaps --------------------------------------------------------------------------------------------------------

LEASES = hostile.objects(
    {
        "holderIdentity": hostile.texts(),
        "leaseDuration": hostile.numbers() | st.sampled_from(["PT15S", "PT999999999H", "PT", "P1D", "-PT1S"]),
        "acquireTime": hostile.texts(),
        "renewTime": hostile.texts(),
        "leaderTransitions": hostile.numbers(),
    }
)
KEYS = st.sampled_from(
    [
        *(
            f"{LEADER}{name}"
            for name in ("dispatcher", "resourcemanager", "restserver", f"job-{JOB}", JOB, "job-x", "")
        ),
        f"executionPlan-{JOB}",
    ]
)
LEADERS = st.sampled_from([f"{SESSION},pekko.tcp://flink@a:1/x", f"{SESSION},", ",", SESSION]) | hostile.texts()


def _text(content: bytes) -> str:
    """As the JSON of a watch may give it: also halves of characters."""
    return content.decode("utf-8", "surrogateescape")


@given(hostile.documents(LEASES).map(_text))
@settings(max_examples=examples(60))
def test_any_annotation_is_a_lease_or_a_reason(annotation: str) -> None:
    """Of a lease that is read the duration is one that a lease can have."""
    lease = decode_lease(annotation)
    assert isinstance(lease, LeaderElectionRecord | Unreadable)
    if isinstance(lease, LeaderElectionRecord):
        assert 0 <= lease.lease_duration <= 24 * 3600 * SECOND
    assert lapses_after(annotation) is None or isinstance(lease, LeaderElectionRecord)


@pytest.mark.parametrize("content", hostile.nested({"holderIdentity": "a", "leaseDuration": 15.0}))
def test_a_lease_nested_too_deep_cannot_be_read(content: bytes) -> None:
    """As any other that is no lease."""
    assert isinstance(decode_lease(content.decode()), Unreadable)


@given(LEADERS | st.binary(max_size=100).map(_text))
def test_any_value_is_a_leader_or_a_reason(value: str) -> None:
    """A leader that is read can be written down."""
    leader = decode_leader(value)
    assert isinstance(leader, LeaderInformation | Unreadable)
    if isinstance(leader, LeaderInformation):
        leader.address.encode()


CONFIG_MAPS = st.tuples(
    st.sampled_from([CONFIG_MAP, f"{CLUSTER}-dispatcher-leader", "other"]) | hostile.texts(),
    st.none() | st.sampled_from(["uid-1", "uid-2"]) | hostile.texts(),
    st.sampled_from(["1", "2", "10"]) | hostile.texts(),
    st.dictionaries(KEYS | hostile.texts(), LEADERS, max_size=4),
    st.none() | hostile.documents(LEASES).map(_text),
    st.sampled_from([0, SECOND // 4, SECOND, 20 * SECOND]),
)


@given(st.lists(CONFIG_MAPS, max_size=12))
@settings(max_examples=examples(40))
def test_any_config_maps_are_stepped_through(
    steps: list[tuple[str, str | None, str, dict[str, str], str | None, int]],
) -> None:
    """No step raises; every record can be written down, and the state that is kept is the state that is read again."""
    policy = replace(POLICY, stores={CLUSTER: Store.KUBERNETES})
    now, state, witness = Moment(START, START), State(), Witness()
    observations: list[Observation] = [
        Started(now),
        ViewObserved(now, CLUSTER, ConnectionState.CONNECTED),
        SnapshotCompleted(now, CLUSTER),
    ]
    for name, uid, version, data, leader, after in steps:
        now = Moment(now.steady + after, now.wall + after)
        observations += [ConfigMapObserved(now, CLUSTER, name, uid, version, data, leader), Ticked(now)]
    for observation in observations:
        state, effects = witness.step(policy, state, observation)
        for effect in effects:
            if isinstance(effect, Append):
                json.encode(effect.record)
    rows = list(changes(State(), state))
    kept, problems = assemble(rows)
    assert (set(changes(State(), kept)), problems) == (set(rows), [])


def test_the_slowest_silences_that_are_written_are_read_too() -> None:
    """Those of campaign and bench: one that is refused is slow for nobody."""
    content = slow_silences()
    silences, problems = silence_document.read(content, POLICY.longest_silence)
    assert (len(silences), problems) == (silence_document.MOST, [])
    assert silence_document.MOST_BYTES * 0.8 < len(content) <= silence_document.MOST_BYTES
