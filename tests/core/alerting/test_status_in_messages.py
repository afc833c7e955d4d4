"""Messages are as the cluster is: green, and a success, is one whose jobs run, and nothing else."""

from msgspec.structs import replace

from sidecar.core.cluster.status import SHOWN, Status
from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.core.auditor import PAGER
from tests.core.cluster.pictures import ASSESSING, before, job, shows
from tests.core.failover.test_assessment import looks
from tests.kit.core_sidecar import POLICY, Sidecar, fail_over, watching, with_destinations
from tests.kit.fake_flink import Flink


def failed_over_after(seconds: float, policy: Policy = ASSESSING) -> tuple[Flink, Sidecar]:
    """Nobody led for so long, and people were notified of that; now B leads."""
    flink, sidecar = watching(policy=with_destinations(PAGER, policy=policy))
    shows(sidecar, before(sidecar))
    fail_over(flink, sidecar, seconds)
    return flink, sidecar


def test_what_is_resolved_is_not_green_while_jobs_do_not_run() -> None:
    """That a leader is back is the end of an alert, and not yet of the outage."""
    _, sidecar = failed_over_after(40)
    looks(sidecar, job(started=2, state="RESTARTING"), seconds=120)
    first, *others = sidecar.sent
    assert (first.status, first.colour, first.kind) == ("DOWN", "red", "failure")
    assert others
    assert {message.status for message in others} == {"RECOVERING"}
    assert {message.kind for message in others} == {"warning"}


def test_what_is_resolved_is_green_once_all_jobs_run() -> None:
    """With what it has come to."""
    _, sidecar = failed_over_after(40)
    looks(sidecar, None, seconds=90)
    last = sidecar.sent[-1]
    assert (last.status, last.colour, last.kind) == ("OK", "green", "success")
    assert last.sentence == "1 of 1 jobs run again, at least 40 s after jm-a was lost"


def test_without_a_rest_server_nothing_is_ever_green() -> None:
    """Who leads is known; whether jobs run is not."""
    _, sidecar = failed_over_after(40, POLICY)
    sidecar.waits(120)
    assert [message.colour for message in sidecar.sent if message.colour != "red"] != []
    assert {message.colour for message in sidecar.sent} == {"red", "blue"}
    assert sidecar.sent[-1].sentence == "jm-b leads; whether jobs run is not known (no REST)"


def test_a_message_about_no_incident_is_shown_by_its_severity() -> None:
    """Failovers that are too many say nothing of how the cluster is now. That they are over is no success either."""
    flaps = Rule("FlinkLeaderFlapping", Trigger.EPISODES, Severity.CRITICAL, count=1, within=60 * SECOND)
    flink, sidecar = watching(policy=replace(with_destinations(PAGER), rules=(flaps,)))
    fail_over(flink, sidecar).waits(150)
    assert [(message.status, message.shown) for message in sidecar.sent] == [
        ("", ("red", "failure")),
        ("", ("blue", "info")),
    ]


def test_only_one_status_is_green() -> None:
    """Whoever adds one thinks of this."""
    assert [status for status in Status if SHOWN[status].kind == "success"] == [Status.OK]
