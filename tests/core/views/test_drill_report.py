"""What a drill has shown, from the records of its sidecar."""

import pytest
from msgspec.structs import replace

from sidecar.core.drills.findings import SETTLING
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.records import Drill
from sidecar.core.views.drill_report import NoDrillError, Report, build_report, chosen, exit_status, report_lines, table
from tests.core.drills.test_drills import DRILLING, drill
from tests.kit.cluster import B
from tests.kit.core_sidecar import Sidecar, fail_over, watching


def reported(sidecar: Sidecar, name: str | None = None) -> Report:
    """As the command reads it."""
    of, ended, earlier = chosen([record for record in sidecar.records if isinstance(record, Drill)], name)
    return build_report(of, ended, earlier, sidecar.records, sidecar.state)


def test_a_report_before_in_and_after_the_failover() -> None:
    """It has no verdict until what is expected has happened; then it has passed, before the window ends, and afterwards it is the same."""
    flink, sidecar = watching(policy=DRILLING)
    sidecar.silenced_by(drill(lasts=300))
    sidecar.waits(15)
    assert (exit_status(reported(sidecar)), reported(sidecar).reasons) == (3, ("No failover was observed yet.",))
    sidecar.sees(flink.vacate()).waits(4)
    assert reported(sidecar).reasons == ("Not every component has a leader again yet.",)
    sidecar.sees(flink.elect(B)).waits(20)
    in_time = reported(sidecar)
    assert (exit_status(in_time), in_time.reasons, in_time.over_at) == (0, (), None)
    sidecar.waits(400)
    assert sidecar.state.drills == {}
    later = reported(sidecar)
    assert replace(later, over_at=None) == in_time
    [ended] = [record for record in sidecar.records if isinstance(record, Drill) and record.phase == "ended"]
    figures = {name: getattr(later, name) for name in Report.__struct_fields__ if "seconds" in name}
    assert figures == {name: getattr(ended, name) for name in figures}
    assert next(report_lines(later)) == f"drill      {drill().id} of default: passed"
    assert "message    delivered to oncall#0 after 0.0 s" in [*report_lines(later)]
    assert "hidden     FlinkLeaderChanged, to ops" in [*report_lines(later)]


def test_a_drill_whose_message_does_not_arrive_has_failed_at_once() -> None:
    """The report says whom it did not reach, and how."""
    _, sidecar = watching(policy=DRILLING)
    sidecar.answers["oncall#0"] = DeliveryOutcome.UNDELIVERABLE
    sidecar.silenced_by(drill())
    sidecar.waits(15)
    drill_report = reported(sidecar)
    assert exit_status(drill_report) == 1
    assert "message    NOT delivered to oncall#0 (gave_up)" in [*report_lines(drill_report)]


def test_a_leader_that_is_elected_after_the_window_fails_the_drill() -> None:
    """Also when everything came back in the end."""
    flink, sidecar = watching(policy=DRILLING)
    sidecar.silenced_by(drill(lasts=100))
    sidecar.waits(50).sees(flink.vacate()).waits(100)
    assert exit_status(reported(sidecar)) == 3
    sidecar.sees(flink.elect(B)).waits(30)
    assert reported(sidecar).reasons == ("Not every component had a leader again when the window ended.",)
    assert exit_status(reported(sidecar)) == 1


def test_drills_are_compared_with_earlier_ones_of_their_cluster() -> None:
    """The newest first; the first drill has none."""
    flink, sidecar = watching(policy=DRILLING)
    sidecar.silenced_by(drill(lasts=200))
    sidecar.waits(15)
    fail_over(flink, sidecar, after=3).waits(200)
    assert table(reported(sidecar)) == []
    starts = (sidecar.now - drill().starts_at) / SECOND + 60
    sidecar.silenced_by(drill(number=2, starts=starts, lasts=100))
    sidecar.waits(SETTLING / SECOND)
    header, own, earlier = table(reported(sidecar))
    assert header[-1] == "Result"
    assert (own[-1], own[1:4]) == ("failed", ("-", "-", "-"))
    assert (earlier[-1], earlier[2], earlier[3]) == ("passed", "3.0 s", "3.0 s")


def test_a_drill_that_is_not_recorded() -> None:
    """Whether it has passed cannot be said: exit status 3."""
    for name in (None, "0000"):
        with pytest.raises(NoDrillError, match="a sidecar knows a drill ten seconds after") as raised:
            chosen([], name)
        assert raised.value.exit_status == 3
