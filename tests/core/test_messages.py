"""What people read is true, short, and text: whatever stands in the store."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core import messages
from sidecar.core.alerts import Alert, Notice, Reason
from sidecar.core.leadership import Component, ComponentId, LeaderInformation, host_port
from sidecar.core.moment import SECOND, Moment
from tests.core.scenery import (
    CLUSTER,
    DISPATCHER,
    JOB,
    LEADER_CHANGED,
    NO_LEADER,
    POLICY,
    RESOURCE_MANAGER,
    REST_SERVER,
    START,
    THE_JOB,
    B,
    watching,
)

AT = Moment(START, START)
LATER = Moment(START + 90 * SECOND, START + 90 * SECOND)


def changed(*alerts: Alert) -> Notice:
    return Notice(LEADER_CHANGED, CLUSTER, Reason.FIRST, alerts)


def test_a_failover_reads_as_who_from_whom_to_whom_when_and_how_long() -> None:
    """The whole message, as it arrives."""
    notice = changed(
        Alert(RESOURCE_MANAGER, AT, "jm-a:6123", "jm-b:6123", 4.25),
        Alert(REST_SERVER, AT, "jm-a:8081", "jm-b:8081", 12.0),
        Alert(THE_JOB, AT, "jm-a:6123", "jm-b:6123"),
    )
    policy = replace(POLICY, external_labels={"env": "prod"})
    assert messages.title(notice) == "[WARNING] Flink default: leader of 3 components changed: jm-a → jm-b"
    assert messages.body(notice, policy) == (
        "resource_manager: jm-a:6123 → jm-b:6123 at 2026-11-20T08:00:00.000000Z, vacant for 4.2 s\n"
        "rest_server: jm-a:8081 → jm-b:8081 at 2026-11-20T08:00:00.000000Z, vacant for 12 s\n"
        f"job {JOB}: jm-a:6123 → jm-b:6123 at 2026-11-20T08:00:00.000000Z\n"
        "\n"
        "alert: FlinkLeaderChanged (FIRST)\n"
        "cluster: default\n"
        "store: zookeeper\n"
        "observer: sidecar-0\n"
        "env: prod"
    )


def test_a_vacancy_reads_as_who_had_led_and_since_when() -> None:
    """And its end as who leads, when and after how long."""
    alert = Alert(DISPATCHER, AT, "jm-a:6123")
    firing = Notice(NO_LEADER, CLUSTER, Reason.FIRST, (alert,))
    assert messages.title(firing) == "[CRITICAL] Flink default: no leader for dispatcher"
    assert messages.body(firing, POLICY).splitlines()[0] == (
        "dispatcher: no leader since 2026-11-20T08:00:00.000000Z (before: jm-a:6123)"
    )
    over = Notice(
        NO_LEADER, CLUSTER, Reason.RESOLVED, (replace(alert, ended=LATER, after="jm-b:6123", vacant_seconds=90.0),)
    )
    assert messages.title(over) == "[RESOLVED] Flink default: dispatcher led again"
    assert messages.body(over, POLICY).splitlines()[0] == (
        "dispatcher: led by jm-b:6123 again at 2026-11-20T08:01:30.000000Z, vacant for 90 s"
    )


def test_a_leader_that_moved_nowhere_has_a_new_session() -> None:
    """Same place before and after: said in words, not as an arrow from a place to itself."""
    assert messages.body(changed(Alert(DISPATCHER, AT, "jm-a:6123", "jm-a:6123")), POLICY).startswith(
        "dispatcher: jm-a:6123, with a new session id at "
    )


def test_a_storm_of_jobs_is_one_bounded_message() -> None:
    """A thousand jobs: the first 25, and how many more."""
    jobs = [ComponentId(Component.JOB, f"{n:032x}") for n in range(1000)]
    body = messages.body(changed(*(Alert(job, AT, "jm-a:6123", "jm-b:6123") for job in jobs)), POLICY)
    assert body.count("jm-a:6123 → jm-b:6123") == messages.MOST_LINES
    assert "… and 975 more" in body.splitlines()
    assert len(body) < 5000


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("pekko.tcp://flink@jm-0.jm:6123/user/rpc/dispatcher_1", "jm-0.jm:6123"),
        ("akka.ssl.tcp://flink@10.1.2.3:6123/user/rpc/resourcemanager_0", "10.1.2.3:6123"),
        ("http://[2001:db8::1]:8081", "[2001:db8::1]:8081"),
        ("https://flink.example:443", "flink.example:443"),
        ("http://[broken", "http://[broken"),
        ("no address", "no address"),
        ("", ""),
    ],
)
def test_an_address_is_told_as_host_and_port(address: str, place: str) -> None:
    """In every scheme that Flink writes; what is no address is told as it stands."""
    assert host_port(address) == place


@given(st.text(max_size=400))
def test_no_control_character_reaches_a_message(hostile: str) -> None:
    """An address with line ends, terminal codes or direction marks stays one bounded, printable line."""
    line = messages.clean(hostile)
    assert line.isprintable()
    assert len(line) <= messages.MOST_CHARACTERS + 1


def test_an_alert_says_why_as_far_as_that_is_known() -> None:
    """While nobody leads, what is known then; once another leads, all; and the name to ask for more. What has no episode has no cause."""
    flink, sidecar = watching()
    flink.vacate()
    sidecar.sees_changes().waits(40)
    flink.elect(B)
    sidecar.sees_changes().waits(120)
    vacant, changed, again = (delivery.body.split("\n\n") for delivery in sidecar.sent)
    episode = sidecar.episodes()[0]
    assert vacant[1].split("\n") == [
        "cause: jobmanager_lost (medium confidence)",
        "Its session in ZooKeeper ended, by no doing of its own.",
        "Nobody leads yet.",
    ]
    assert changed[1].split("\n") == ["cause: jobmanager_lost (high confidence)", *episode.facts]
    assert changed[1] == again[1]
    assert {body[2].split("\n")[-1] for body in (vacant, changed, again)} == {f"episode: {episode.id}"}
    flink.vacate(THE_JOB)
    sidecar.sees_changes().waits(40)
    assert "cause" not in sidecar.sent[-1].body


def test_a_failover_is_one_line_of_the_log() -> None:
    """From whom to whom, why, how sure that is, for how long, how many jobs, and under which name to ask for more."""
    flink, sidecar = watching()
    flink.vacate()
    sidecar.sees_changes().waits(1)
    flink.elect(B)
    sidecar.sees_changes().waits(10)
    (episode,) = sidecar.episodes()
    assert messages.episode_line(episode) == (
        f"failover jm-a:6123 → jm-b:6123: jobmanager_lost (high), vacant for {episode.vacant_seconds:.3f} s, 1 of 1 jobs [{episode.id}]"
    )
    sidecar.is_cut_off().waits(20).connects().waits(70)
    blind = sidecar.episodes()[-1]
    assert messages.episode_line(blind) == f"no failover: observer_blind (high) [{blind.id}]"


def test_a_hostile_leader_address_cannot_write_lines_of_its_own() -> None:
    """Tampered leader information, told to people: as many lines as there are components, and no escape sequence."""
    flink, sidecar = watching()
    hostile = "http://x\n[CRITICAL] all is lost\r\x1b[2J\u202e\u2028@evil" + "y" * 5000
    flink.publish(DISPATCHER, LeaderInformation(hostile, UUID(int=66)))
    sidecar.sees_changes().waits(10)
    (sent,) = sidecar.sent
    assert sent.title.isprintable()
    assert all(line.isprintable() for line in sent.body.split("\n"))
    assert len(sent.body.split("\n")) == 11
    assert len(sent.title) + len(sent.body) < 1500
    (episode,) = sidecar.episodes()
    assert messages.episode_line(episode).isprintable()
