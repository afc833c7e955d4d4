"""When a group is notified next, with thousands of alerts in it."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.alerting import flushing, grouping
from sidecar.core.alerting.alerts import Alert, Alerts
from sidecar.core.alerting.grouping import rescheduled
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Policy, Severity
from sidecar.core.policy.routing import Route

ROUTE = Route("ops", group_wait=5 * SECOND, group_interval=60 * SECOND, repeat_interval=3600 * SECOND)
POLICY = Policy("observer-1", {}, route=ROUTE)


def alert(number: int, severity: str, now: Moment) -> Alert:
    return Alert(str(number), "Any", "default", {"alert": "Any", "severity": severity}, now)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 9), st.sampled_from([severity.value for severity in Severity])),
            st.tuples(st.integers(0, 9), st.none()),
            st.none(),
        ),
        max_size=40,
    ),
    st.lists(st.integers(1, 90), min_size=40, max_size=40),
)
def test_an_alert_that_joins_is_enough_to_look_at(
    events: list[tuple[int, str | None] | None], pauses: list[int]
) -> None:
    """Alerts fire, are resolved and notified: the next flush is what it is when all members are looked at again."""
    alerts, second = Alerts(), 0
    for event, pause in zip(events, pauses, strict=False):
        second += pause
        now, before = Moment(second * SECOND, second * SECOND), alerts
        match event:
            case (number, str(severity)):
                alerts = grouping.fire(alerts, POLICY, alert(number, severity, now), now)
                for fingerprint, group in alerts.groups.items():
                    earlier = before.groups.get(fingerprint)
                    again = replace(group, flush_at=earlier.flush_at if earlier else None)
                    assert group.flush_at == rescheduled(again, ROUTE, now).flush_at
            case (number, _):
                alerts = grouping.resolve(alerts, POLICY, {str(number)}, now, lambda over: over)
            case None:
                alerts, _, _ = flushing.flush(alerts, POLICY, (), now)
