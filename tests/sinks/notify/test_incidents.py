"""One incident stays one: it is opened, updated and closed by one key, at every service in its own way, whatever fails in between.

More random runs: `python -m tests.sinks.notify.test_incidents [RUNS [children]]`; `children`: each attempt in a process of its own.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from sidecar.core.message import Message
from sidecar.net.endpoints import INCIDENT_SCHEMES, Endpoint, Secret, Slack
from sidecar.sinks.notify import apprise_plugins
from sidecar.sinks.notify.sender import send
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit import paging
from tests.kit.incident_scene import CHANGED, VACANT, Scene, failovers, one_incident, played, reloads
from tests.kit.paging import CHANNEL, KEY, TOKEN, Desk, ILert, Internet, Jira, Opsgenie, PagerDuty, Reply
from tests.kit.receivers import apprise
from tests.kit.serving import serving

# Apprise's mail plugin, which some schemes make it import, imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

SERVICES: dict[str, type[Desk]] = {each.__name__: each for each in (PagerDuty, Opsgenie, Jira, ILert, paging.Slack)}
RUNS = 5


def endpoint_of(service: type[Desk]) -> Endpoint:
    """How the service is configured."""
    if service is paging.Slack:
        return Slack(Secret(TOKEN), CHANNEL, "https://slack.com/api")
    return apprise(service.url)


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    """Where the services are."""
    with serving(Internet(tmp_path_factory.mktemp("internet"), *(make() for make in SERVICES.values()))) as served:
        yield served


def play(
    internet: Internet, name: str, seed: int, what: Callable[[Scene], None] = one_incident, *, children: bool = False
) -> Scene:
    """One random history. Raises AssertionError unless every incident is closed, and there is one if there can be only one."""
    service = SERVICES[name]
    desk = internet.services[service.host] = service()
    rules = (VACANT, CHANGED) if what is failovers else (VACANT,)
    with (
        patch.dict("os.environ", internet.environment),
        played(lambda: Scene(endpoint_of(service), internet, seed, *rules, children=children)) as scene,
    ):
        what(scene)
    incidents = [incident.is_open for incident in desk.incidents]
    assert incidents and not any(incidents), f"{name}, seed {seed}: {incidents}"  # noqa: PT018
    assert what is not one_incident or len(incidents) == 1, f"{name}, seed {seed}: {len(incidents)} incidents"
    for sidecar in scene.sidecars:
        assert sidecar.state.outbox == {}
    return scene


@pytest.mark.parametrize("name", SERVICES)
def test_one_incident_is_opened_and_closed_whatever_happens(internet: Internet, name: str) -> None:
    """Three sidecars, outages of the service, answers that are lost, and kill -9 between request and mark."""
    for seed in range(RUNS):
        play(internet, name, seed)


@pytest.mark.parametrize("name", SERVICES)
def test_failovers_that_are_over_leave_no_open_incident(internet: Internet, name: str) -> None:
    """No resolve follows them: their incident is closed for them, and not that of what goes on."""
    for seed in range(2):
        play(internet, name, seed, failovers)


@pytest.mark.parametrize("name", SERVICES)
def test_rules_that_come_and_go_leave_no_open_incident(internet: Internet, name: str) -> None:
    """Three sidecars load them one after the other: the service is sent what is not notified any more, and opens what is again."""
    for seed in range(2):
        play(internet, name, seed, reloads)


FIRST = Message(
    "[CRITICAL] Flink orders: no leader for dispatcher",
    "dispatcher: no leader",
    "critical",
    reason="FIRST",
    receiver="ops",
    incident="0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11",
    goes_on=True,
)
WORDS = {
    "squadcast": (f"squadcast://{KEY}", "api.squadcast.com", "event_id", "status", ("trigger", "resolve")),
    "incidentio": (
        f"incidentio://source12/{KEY}",
        "api.incident.io",
        "deduplication_key",
        "status",
        ("firing", "resolved"),
    ),
    "splunk": (f"splunk://route@{KEY}", "alert.victorops.com", "entity_id", "message_type", ("CRITICAL", "RECOVERY")),
    "victorops": (
        f"victorops://route@{KEY}",
        "alert.victorops.com",
        "entity_id",
        "message_type",
        ("CRITICAL", "RECOVERY"),
    ),
    "firehydrant": (f"firehydrant://{KEY}", "signals.firehydrant.com", "idempotency_key", "status", ("OPEN", "CLOSED")),
    "pagertree": ("pagertree://int_0123456789", "api.pagertree.com", "id", "event_type", ("create", "resolve")),
    "signl4": (f"signl4://{KEY}", "connect.signl4.com", "X-S4-ExternalID", "X-S4-Status", (None, "resolved")),
    "goalerts": (
        "goalerts://goalert.example/0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11",
        "goalert.example",
        "dedup",
        "action",
        (None, "close"),
    ),
    "opsimates": (f"opsimates://{KEY}@opsimate.example", "opsimate.example", "id", "status", ("firing", "resolved")),
    "pagerduty": (
        f"pagerduty://{KEY}@{KEY}",
        "events.pagerduty.com",
        "dedup_key",
        "event_action",
        ("trigger", "resolve"),
    ),
    "ilert": (f"ilert://{KEY}", "api.ilert.com", "alertKey", "eventType", ("ALERT", "RESOLVE")),
}
"""By scheme: a URL, the service's host, its fields for the key and for what happened, and what these say first and at the end."""


class Noting(Desk):
    """A service that takes everything."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host

    def answer(self, path: str, _headers: Mapping[str, str], body: bytes, /) -> Reply:
        """Note it."""
        self.requests.append((path, json.loads(body)))
        return Reply(200, {"result": "success"})


@pytest.fixture
def deliver(internet: Internet, monkeypatch: pytest.MonkeyPatch) -> Callable[[Message, str], Answer]:
    """Sends a message in this process."""
    for name, value in internet.environment.items():
        monkeypatch.setenv(name, value)
    internet.fault, internet.took = (lambda: 0), (lambda: None)
    return lambda message, url: send(message, apprise(url), 20.0)


NATIVE = {
    "squadcast": f"https://api.squadcast.com/v2/incidents/api/{KEY}",
    "incidentio": f"https://api.incident.io/v2/alert_events/http/source12?token={KEY}",
    "splunk": f"https://alert.victorops.com/integrations/generic/20131114/alert/{KEY}/route",
    "firehydrant": f"https://signals.firehydrant.com/v1/process/{KEY}",
}
"""The URLs that services themselves give out, which Apprise takes too."""


@pytest.mark.parametrize(("scheme", "url"), [*((scheme, about[0]) for scheme, about in WORDS.items()), *NATIVE.items()])
def test_every_message_has_the_key_of_its_incident(
    internet: Internet, deliver: Callable[[Message, str], Answer], scheme: str, url: str
) -> None:
    """In the service's own words. The texts differ; what opens and what closes does not depend on them."""
    _, host, key, what, words = WORDS[scheme]
    desk = internet.services[host] = Noting(host)
    reasons = ("FIRST", "GREW", "REPEAT_INTERVAL_ELAPSED", "RESOLVED")
    for reason in reasons:
        message = replace(FIRST, reason=reason, title=f"[{reason}] what it says")
        assert deliver(message, url) == Answer("delivered")
    opened, closed = words
    assert [(each[key], each.get(what)) for _, each in desk.requests] == [
        (FIRST.incident, closed if reason == "RESOLVED" else opened) for reason in reasons
    ]


def test_every_service_with_a_key_is_tested() -> None:
    """And the settings know all of them: they order the messages, and close what nothing else would close."""
    assert {*apprise_plugins.KEYS} == INCIDENT_SCHEMES
    assert {*WORDS, "goalert", "opsimate", "opsgenie", "jira"} == INCIDENT_SCHEMES


@pytest.mark.parametrize("service", [Opsgenie, Jira])
def test_opsgenie_gets_notes_and_a_close_by_alias(
    internet: Internet, deliver: Callable[[Message, str], Answer], service: type[Desk]
) -> None:
    """An alert that is open already is only counted, so what has changed is a note."""
    desk = internet.services[service.host] = service()
    for reason in ("FIRST", "GREW", "SHRANK", "REPEAT_INTERVAL_ELAPSED", "RESOLVED"):
        assert deliver(replace(FIRST, reason=reason), service.url) == Answer("delivered")
    assert [what for what, _ in desk.requests] == ["create", "create", "notes", "notes", "create", "close"]
    assert [(incident.is_open, incident.key) for incident in desk.incidents] == [(False, FIRST.incident)]


def test_a_key_in_the_url_is_left(internet: Internet, deliver: Callable[[Message, str], Answer]) -> None:
    """Whoever gives one wants one incident for everything."""
    desk = internet.services["events.pagerduty.com"] = Noting("events.pagerduty.com")
    deliver(replace(FIRST, reason="RESOLVED"), f"pagerduty://{KEY}@{KEY}?dedup=mine&action=trigger")
    ((_, event),) = desk.requests
    assert (event["dedup_key"], event["event_action"]) == ("mine", "resolve")


def test_a_wrong_key_is_rejected_in_one_line(internet: Internet, deliver: Callable[[Message, str], Answer]) -> None:
    """The service says so, and no secret is in it."""
    internet.services["api.opsgenie.com"] = Opsgenie()
    wrong = "fedcba9876543210"
    answer = deliver(replace(FIRST, reason="RESOLVED"), f"opsgenie://{wrong}")
    assert answer.outcome == "rejected"
    assert "422" in answer.detail
    assert wrong not in answer.detail


def main(runs: int, *, children: bool) -> None:
    """Random histories of each service; the first one that fails ends it."""
    services = (service() for service in SERVICES.values())
    with TemporaryDirectory() as folder, serving(Internet(Path(folder), *services)) as internet:
        for name in SERVICES:
            scenes = [
                play(internet, name, 1000 + number, what, children=children)
                for number in range(runs)
                for what in (one_incident, failovers)
            ]
            kills = sum(scene.kills for scene in scenes)
            attempts = sum(len(sidecar.sent) for scene in scenes for sidecar in scene.sidecars)
            print(f"{name}: {len(scenes)} runs, {attempts} attempts, {kills} kills: every incident closed", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 50, children="children" in sys.argv[2:])
