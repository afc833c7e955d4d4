"""Notifications arrive as they are, every attempt is settled in time, and no secret of a URL is seen anywhere but at its service."""

import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email import message_from_bytes, policy
from pathlib import Path
from queue import Queue

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.cluster.record_lines import DUPLICATE_NOTE
from sidecar.core.cluster.status import SHOWN, Status
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Severity
from sidecar.sinks.notify.notifier import CAPACITY, Attempt, Notifier, check_endpoints
from tests import ROOT
from tests.kit.receivers import apprise, send_by_url, webhook
from tests.lab.processes import free_port
from tests.lab.receivers import HttpReceiver, MailReceiver

SECRETS = ("s3cretUser", "p4ss/word", "p4ss%2Fword", "T0kenInPath", "T0kenInQuery", "T0kenInHeader")
WITH_SECRETS = "json://s3cretUser:p4ss%2Fword@{}/T0kenInPath?-key=T0kenInQuery&+X-Token=T0kenInHeader"

DELIVERY = Delivery(
    id="d-1",
    destination="ops#0",
    receiver="ops",
    cluster_id="default",
    alert="FlinkLeaderChanged",
    fingerprint="f",
    reason=Reason.FIRST,
    severity=Severity.WARNING,
    title="[WARNING] default: dispatcher failed over: a:1 → b:2",
    body="dispatcher: a:1 → b:2\n\nalert: FlinkLeaderChanged <!channel> <script>alert(1)</script> & *bold* @here",
    queued_at=Moment(0, 0),
    next_at=0,
)

Settled = tuple[str, DeliveryOutcome, str]


class Outbox:
    """Notes what is settled."""

    def __init__(self) -> None:
        self.settled: Queue[Settled] = Queue()
        self.asked_to_wait: list[int | None] = []

    def settle(self, delivery_id: str, attempt: Attempt) -> None:
        self.asked_to_wait.append(attempt.retry_after)
        self.settled.put((delivery_id, attempt.outcome, attempt.detail))

    def next(self) -> Settled:
        return self.settled.get(timeout=30)


MakeNotifier = Callable[..., Notifier]


@pytest.fixture
def outbox() -> Outbox:
    """Where attempts are settled."""
    return Outbox()


@pytest.fixture
def notify(outbox: Outbox) -> Iterator[MakeNotifier]:
    """Starts a notifier with these URLs; it is stopped in the end."""
    notifiers = []

    def start(urls: Mapping[str, str], *, time_limit: float = 20.0, workers: int = 4) -> Notifier:
        endpoints = {name: apprise(url) for name, url in urls.items()}
        notifier = Notifier(endpoints, outbox.settle, time_limit=time_limit, workers=workers)
        notifiers.append(notifier)
        notifier.start()
        return notifier

    yield start
    for notifier in notifiers:
        notifier.stop()
    assert children() == []


def children(parent: int | None = None) -> list[int]:
    """The senders that a process runs, this one if none is named."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended in between
            fields = stat.read_text().rpartition(")")[2].split()
            if (
                int(fields[1]) == (parent or os.getpid())
                and b"sidecar.sinks.notify.sender" in (stat.parent / "cmdline").read_bytes()
            ):
                pids.append(int(stat.parent.name))
    return pids


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_delivers_title_and_body_as_they_are_to_a_webhook(
    notify: MakeNotifier, outbox: Outbox, web: HttpReceiver
) -> None:
    """Text that looks like markup stays text: nothing is added, removed or interpreted."""
    notify({"ops#0": web.url}).send(DELIVERY)
    assert outbox.next() == ("d-1", DeliveryOutcome.DELIVERED, "")
    assert [(message.title, message.body) for message in web.received] == [(DELIVERY.title, DELIVERY.body)]


@pytest.mark.parametrize(
    ("reason", "severity", "shown", "expected"),
    [
        (Reason.FIRST, Severity.INFO, (), "info"),
        (Reason.FIRST, Severity.WARNING, (), "warning"),
        (Reason.GREW, Severity.CRITICAL, (), "failure"),
        (Reason.RESOLVED, Severity.CRITICAL, SHOWN[Status.OK], "success"),
        (Reason.RESOLVED, Severity.CRITICAL, SHOWN[Status.UNCHECKED], "info"),
        (Reason.FIRST, Severity.WARNING, SHOWN[Status.DOWN], "failure"),
    ],
)
def test_the_service_is_sent_how_bad_it_is(
    notify: MakeNotifier,
    outbox: Outbox,
    web: HttpReceiver,
    reason: Reason,
    severity: Severity,
    shown: tuple[str, ...],
    expected: str,
) -> None:
    """Colours and icons of a service follow the status, and the severity where there is none; only OK is a success."""
    of_status = dict(zip(("colour", "kind"), shown, strict=False))
    notify({"ops#0": web.url}).send(replace(DELIVERY, reason=reason, severity=severity, **of_status))
    assert outbox.next()[1] is DeliveryOutcome.DELIVERED
    assert json.loads(web.received[0].raw)["type"] == expected


def test_a_possible_duplicate_says_so(notify: MakeNotifier, outbox: Outbox, web: HttpReceiver) -> None:
    """A reader of both messages knows why."""
    notify({"ops#0": web.url}).send(replace(DELIVERY, possible_duplicate=True))
    assert outbox.next()[1] is DeliveryOutcome.DELIVERED
    assert web.received[0].body == f"{DELIVERY.body}\n\n{DUPLICATE_NOTE}"


def test_hostile_text_is_delivered_and_does_no_harm(
    notify: MakeNotifier, outbox: Outbox, web: HttpReceiver, mail: MailReceiver
) -> None:
    """Line breaks make no headers, NUL ends nothing, and 100 kB are cut rather than refused for ever."""
    hostile = replace(
        DELIVERY, title="a\r\nBcc: evil@example.com\x00" + "t" * 100_000, body="b\r\n.\r\nQUIT\r\n\x00" + "ü" * 100_000
    )
    notifier = notify({"ops#0": web.url, "ops#1": mail.url})
    for index in range(2):
        notifier.send(replace(hostile, id=f"d-{index}", destination=f"ops#{index}"))

    settled = {outbox.next(), outbox.next()}

    assert settled == {("d-0", DeliveryOutcome.DELIVERED, ""), ("d-1", DeliveryOutcome.DELIVERED, "")}
    assert web.received[0].body.startswith("b\r\n.\r\nQUIT\r\n\x00üüü")
    parsed = message_from_bytes(mail.received[0].raw, policy=policy.default)
    assert parsed["Bcc"] is None
    assert parsed["To"] == "operator@example.com"
    assert parsed.get_content().splitlines()[:3] == ["b", ".", "QUIT"]


@pytest.mark.parametrize("status", [302, 307, 308])
def test_an_answer_does_not_choose_where_a_message_goes(
    notify: MakeNotifier, outbox: Outbox, web: HttpReceiver, status: int
) -> None:
    """A redirect is a refusal: otherwise a webhook could steer the sidecar to any address inside the network."""
    with webhook() as other:
        web.status, web.headers = status, {"Location": f"http://{other.address}/"}
        notify({"ops#0": web.url}).send(DELIVERY)
        assert outbox.next()[1] is DeliveryOutcome.REJECTED
        assert other.received == []


def test_facts_and_link_arrive_below_the_text(notify: MakeNotifier, outbox: Outbox, web: HttpReceiver) -> None:
    """How each service shows them is `test_formatting`'s."""
    facts = (("cluster", "default"), ("observer", "pod-1"))
    notify({"ops#0": web.url}).send(replace(DELIVERY, facts=facts, link="https://wiki.example/runbook"))
    assert outbox.next()[1] is DeliveryOutcome.DELIVERED
    assert web.received[0].body == (
        f"{DELIVERY.body}\n\ncluster: default\nobserver: pod-1\n\nhttps://wiki.example/runbook"
    )


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "asked"),
    [
        (404, {}, DeliveryOutcome.REJECTED, None),
        (429, {"Retry-After": "7"}, DeliveryOutcome.RATE_LIMITED, 7 * SECOND),
        (500, {}, DeliveryOutcome.TIMED_OUT, None),
    ],
)
def test_the_answer_of_the_service_is_reported(
    notify: MakeNotifier,
    outbox: Outbox,
    web: HttpReceiver,
    status: int,
    headers: dict[str, str],
    outcome: DeliveryOutcome,
    asked: int | None,
) -> None:
    """The outcome, its reason, and how long to wait. All outcomes are in `test_http_outcome`."""
    web.status, web.headers = status, headers
    notify({"ops#0": WITH_SECRETS.format(web.address)}).send(DELIVERY)

    _, reported_outcome, detail = outbox.next()

    assert (reported_outcome, outbox.asked_to_wait) == (outcome, [asked])
    assert str(status) in detail
    assert len(web.received) == 1


def test_options_of_the_url_neither_hide_a_failure_nor_repeat_it(
    notify: MakeNotifier, outbox: Outbox, web: HttpReceiver
) -> None:
    """Apprise would call an optional service's failure a success, and try again by itself."""
    web.status = 500
    notify({"ops#0": f"{web.url}?optional=yes&retry=3&wait=0"}).send(DELIVERY)
    assert outbox.next()[1] is DeliveryOutcome.TIMED_OUT
    assert len(web.received) == 1


def test_a_refused_connection_is_a_failure_with_its_reason(notify: MakeNotifier, outbox: Outbox) -> None:
    """What was never sent cannot have arrived."""
    notify({"ops#0": WITH_SECRETS.format(f"127.0.0.1:{free_port()}")}).send(DELIVERY)
    _, outcome, detail = outbox.next()
    assert outcome is DeliveryOutcome.FAILED
    assert "127.0.0.1" in detail
    assert "Connection refused" in detail


@pytest.mark.timing
def test_a_service_that_hangs_is_cut_off_at_the_limit(notify: MakeNotifier, outbox: Outbox, web: HttpReceiver) -> None:
    """The limit is hard, and the process that hung is gone."""
    web.answer_after = math.inf
    began = time.monotonic()
    notify({"ops#0": web.url}, time_limit=4.0).send(DELIVERY)
    settled = outbox.next()
    assert settled == ("d-1", DeliveryOutcome.TIMED_OUT, "no answer within 4 s; the message may have arrived")
    assert 4.0 <= time.monotonic() - began < 8.0
    assert len(web.received) == 1
    assert eventually(lambda: children() == [])


def test_a_connection_lost_before_the_answer_may_have_delivered(
    notify: MakeNotifier, outbox: Outbox, web: HttpReceiver
) -> None:
    """The message arrived without an answer: the next attempt must be labelled."""
    web.answer_after = math.inf
    notify({"ops#0": web.url}).send(DELIVERY)
    assert eventually(lambda: web.received)
    web.stop()
    assert outbox.next()[1] is DeliveryOutcome.TIMED_OUT


def test_a_slow_answer_is_waited_for(notify: MakeNotifier, outbox: Outbox, web: HttpReceiver) -> None:
    """Longer than Apprise's own four seconds, because giving up early makes duplicates."""
    web.answer_after = 5.0
    notify({"ops#0": web.url}).send(DELIVERY)
    assert outbox.next() == ("d-1", DeliveryOutcome.DELIVERED, "")


def test_a_slow_destination_delays_no_other(notify: MakeNotifier, outbox: Outbox, web: HttpReceiver) -> None:
    """Others are delivered while one hangs."""
    with webhook() as slow:
        slow.answer_after = math.inf
        notifier = notify({"slow#0": slow.url, "ops#0": web.url}, time_limit=60.0)
        notifier.send(replace(DELIVERY, id="slow", destination="slow#0"))
        assert eventually(lambda: slow.received)
        for number in range(3):
            notifier.send(replace(DELIVERY, id=f"d-{number}"))
        assert {outbox.next()[0] for _ in range(3)} == {"d-0", "d-1", "d-2"}
        assert len(children()) == 1


def test_a_sender_that_dies_is_settled_and_the_next_one_sends(
    notify: MakeNotifier, outbox: Outbox, web: HttpReceiver
) -> None:
    """A child may be killed for its memory at any moment; its message may have arrived."""
    web.answer_after = math.inf
    notifier = notify({"ops#0": web.url}, workers=1)
    notifier.send(DELIVERY)
    assert eventually(lambda: web.received)
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    _, outcome, detail = outbox.next()
    web.answer_after = 0.0
    notifier.send(DELIVERY)

    assert (outcome, detail) == (
        DeliveryOutcome.TIMED_OUT,
        "the sender ended without an answer (exit code -9); the message may have arrived",
    )
    assert outbox.next()[1] is DeliveryOutcome.DELIVERED


def test_a_worker_survives_errors_of_others(web: HttpReceiver, caplog: pytest.LogCaptureFixture) -> None:
    """A destination is not silent for ever because one outcome could not be recorded."""
    settled: Queue[str] = Queue()

    def settle(delivery_id: str, *_: object) -> None:
        settled.put(delivery_id)
        raise RuntimeError("the inbox is closed")

    notifier = Notifier({"ops#0": apprise(web.url)}, settle, workers=1)
    notifier.start()
    notifier.send(DELIVERY)
    notifier.send(replace(DELIVERY, id="d-2"))

    assert [settled.get(timeout=30), settled.get(timeout=30)] == ["d-1", "d-2"]
    notifier.stop()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_stop_lets_a_message_that_is_being_sent_finish(notify: MakeNotifier, outbox: Outbox, web: HttpReceiver) -> None:
    """It is settled as delivered, so it is not sent again after the restart."""
    web.answer_after = 1.0
    notifier = notify({"ops#0": web.url})
    notifier.send(DELIVERY)
    assert eventually(lambda: web.received)
    notifier.stop()
    assert outbox.settled.get_nowait() == ("d-1", DeliveryOutcome.DELIVERED, "")


@pytest.mark.timing
def test_stop_is_bounded_and_settles_everything(notify: MakeNotifier, outbox: Outbox, web: HttpReceiver) -> None:
    """What hangs is cut off and may have arrived; what waited, or comes later, was not sent."""
    web.answer_after = math.inf
    notifier = notify({"ops#0": web.url}, time_limit=60.0, workers=1)
    notifier.send(replace(DELIVERY, id="hangs"))
    assert eventually(lambda: web.received)
    notifier.send(replace(DELIVERY, id="waits"))
    began = time.monotonic()

    notifier.stop()
    notifier.stop()
    notifier.send(replace(DELIVERY, id="late"))

    assert time.monotonic() - began < 8.0
    assert children() == []
    assert {outbox.settled.get_nowait() for _ in range(3)} == {
        ("hangs", DeliveryOutcome.TIMED_OUT, "the sidecar is stopping; the message may have arrived"),
        ("waits", DeliveryOutcome.FAILED, "not sent: the sidecar is stopping"),
        ("late", DeliveryOutcome.FAILED, "not sent: the sidecar is stopping"),
    }
    assert len(web.received) == 1


def test_stop_before_start_is_quiet(outbox: Outbox, web: HttpReceiver) -> None:
    """What was given to a notifier that never started is settled, and it does not start any more."""
    notifier = Notifier({"ops#0": apprise(web.url)}, outbox.settle)
    notifier.send(DELIVERY)
    notifier.stop()
    notifier.start()
    assert outbox.settled.get_nowait() == ("d-1", DeliveryOutcome.FAILED, "not sent: the sidecar is stopping")
    assert web.received == []


def test_more_than_fits_is_refused_at_once(outbox: Outbox, web: HttpReceiver) -> None:
    """The queue is bounded; a full one is reported at once."""
    notifier = Notifier({"ops#0": apprise(web.url)}, outbox.settle)
    for number in range(CAPACITY + 1):
        notifier.send(replace(DELIVERY, id=f"d-{number}"))
    assert outbox.settled.get_nowait() == (f"d-{CAPACITY}", DeliveryOutcome.FAILED, f"not sent: {CAPACITY} others wait")
    assert outbox.settled.empty()


def test_a_destination_that_is_gone_is_undeliverable(notify: MakeNotifier, outbox: Outbox) -> None:
    """A row of the outbox may be older than the configuration."""
    notify({}).send(DELIVERY)
    assert outbox.next() == ("d-1", DeliveryOutcome.UNDELIVERABLE, "this destination is not configured any more")


UNUSABLE = {
    "foo://s3cretUser:T0kenInPath@host/T0kenInPath": "no service is called foo://, see https://appriseit.com/services/",
    "T0kenInPath": "not an Apprise URL: no scheme:// begins it, see https://appriseit.com/services/",
    "": "not an Apprise URL: no scheme:// begins it, see https://appriseit.com/services/",
    "json://s3cretUser:T0kenInPath@127.0.0.1/?method=T0kenInQuery": (
        "json:// cannot be used: The method specified (***) is invalid."
    ),
    "slack://T0kenInPath%20/A1BRTD4JD/s3cretUser": "slack:// cannot be used: An invalid Slack (first) Token (***) was specified.",
    "mailto://s3cretUser:T0kenInPath@example.com?to=a@example.com,b@example.com": (
        "names 2 targets: give each a URL of its own, or one that fails repeats the message to the others"
    ),
    "json://T0kenInPath:T0kenInQuery": "json:// cannot be used: Unparseable JSON URL json://...",
}


def test_check_endpoints_names_unusable_urls(
    web: HttpReceiver, mail: MailReceiver, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One line each, without the secret, and nothing is sent to those that are right."""
    caplog.set_level(logging.NOTSET)
    urls = {"web": web.url, "mail": mail.url, **{url: url for url in UNUSABLE}}
    assert check_endpoints({name: apprise(url) for name, url in urls.items()}).problems == UNUSABLE
    assert web.received == []
    assert mail.received == []
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


def test_an_option_that_a_service_does_not_have_is_named(web: HttpReceiver, mail: MailReceiver) -> None:
    """Apprise ignores it: a region or a server that is misspelled would lead the messages elsewhere. A message is sent all the same."""
    urls = {
        "misspelled": "pagerduty://0123456789abcdef@0123456789abcdef?regoin=eu",
        "prefixed": f"{web.url}?-a=T0kenInQuery&+b=x&:c=x&method=PUT&verify=no&rto=3&T0kenInPath",
        "mail": f"{mail.url}&name=flink&reply=a@example.com",
    }
    assert check_endpoints({name: apprise(url) for name, url in urls.items()}).problems == {
        "misspelled": (
            "pagerduty:// has no option regoin: write region=… if that is meant, or remove it: see https://appriseit.com/services/pagerduty/"
        )
    }


def test_the_service_of_its_own_url_is_what_apprise_says() -> None:
    """Of any that Apprise knows, also where it keeps incidents. What no service gives out stays unusable."""
    urls = {
        "slack": "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/T0kenInPathT0kenInPath12",
        "discord": "HTTPS://discord.com/api/webhooks/0123456789/T0kenInPath",
        "squadcast": "https://api.squadcast.com/v2/incidents/api/T0kenInPath",
        "none": "https://example.com/T0kenInPath",
        "json": "json://127.0.0.1",
    }
    found = check_endpoints({name: apprise(url) for name, url in urls.items()})
    assert found.natives == {name: name for name in ("slack", "discord", "squadcast")}
    assert found.problems == {
        "none": (
            "https:// names no service that Apprise knows by this URL: write it as Apprise spells its service, or write webhook: {url: …} "
            "in place of urls, to post Alertmanager's payload to it: see https://appriseit.com/services/"
        )
    }
    known = replace(apprise(urls["squadcast"]), native="squadcast")
    assert (known.service, known.keeps_incidents, known.in_order) == ("squadcast", True, True)


@pytest.mark.parametrize("url", UNUSABLE)
def test_a_url_that_nothing_can_be_sent_to_is_undeliverable(notify: MakeNotifier, outbox: Outbox, url: str) -> None:
    """Trying again would not help."""
    notify({"ops#0": url}).send(DELIVERY)
    assert outbox.next() == ("d-1", DeliveryOutcome.UNDELIVERABLE, UNUSABLE[url])


def test_secrets_stay_between_the_url_and_its_service(
    notify: MakeNotifier,
    outbox: Outbox,
    web: HttpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No process list, log, output, repr or detail has them, nor has the sender's environment, even if the sidecar's own does."""
    caplog.set_level(logging.NOTSET)
    url = WITH_SECRETS.format(web.address)
    monkeypatch.setenv("WEBHOOK_URL", url)
    web.status, web.answer_after = 500, math.inf
    notifier = notify({"ops#0": url}, time_limit=60.0)
    notifier.send(DELIVERY)
    assert eventually(lambda: web.received)
    (child,) = children()
    visible = Path(f"/proc/{child}/cmdline").read_text() + Path(f"/proc/{child}/environ").read_text() + repr(notifier)
    web.answer_after = 0.0
    notifier.send(replace(DELIVERY, id="d-2"))
    _, outcome, detail = outbox.next()
    web.stop()
    outbox.next()
    visible += detail + "".join(capfd.readouterr()) + caplog.text

    assert outcome is DeliveryOutcome.TIMED_OUT
    assert "500" in detail
    assert [secret for secret in SECRETS if secret.casefold() in visible.casefold()] == []


@pytest.mark.parametrize(
    "said",
    [
        "user s3cretUser, password p4ss/word or p4ss%2Fword",
        "POST /t0keninpath?key=T0kenInQuery",
        "header X-Token: T0kenInHeader",
        "s3cretUser:p4ss%2Fword@127.0.0.1:1/T0kenInPath?-key=T0kenInQuery&+X-Token=T0kenInHeader",
    ],
)
def test_a_reason_that_quotes_the_url_is_scrubbed(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """Whatever text a plugin or a service returns. The sender runs in this process, to replace the plugin's text."""
    from apprise.plugins.custom_json import NotifyJSON

    def send(self: NotifyJSON, **_: object) -> bool:
        self.logger.warning("refused:\n%s\x1b[2J%s", said, "x" * 1000)
        return False

    monkeypatch.setattr(NotifyJSON, "send", send)

    answer = send_by_url(WITH_SECRETS.format("127.0.0.1:1"), "title", "body", "info", 5.0)

    assert answer.outcome == "failed"
    assert answer.detail.startswith("refused: ")
    assert answer.detail.isprintable()
    assert len(answer.detail) == 200
    assert [secret for secret in SECRETS if secret.casefold() in answer.detail.casefold()] == []


PARENT = """
import sys, threading
from tests.kit.receivers import apprise
from tests.sinks.notify.test_notifier import DELIVERY
from sidecar.sinks.notify.notifier import Notifier
notifier = Notifier({"ops#0": apprise(sys.argv[1])}, print, time_limit=600.0)
notifier.start()
notifier.send(DELIVERY)
threading.Event().wait()
"""


def test_a_sender_ends_with_its_parent(web: HttpReceiver) -> None:
    """Also when the sidecar is killed."""
    web.answer_after = math.inf
    parent = subprocess.Popen([sys.executable, "-c", PARENT, web.url], cwd=ROOT)
    try:
        assert eventually(lambda: web.received)
        (child,) = children(parent.pid)
    finally:
        parent.kill()
        parent.wait(10)
    assert eventually(lambda: not Path(f"/proc/{child}").exists())


@pytest.mark.parametrize(
    ("module", "package", "loaded"),
    [
        ("sidecar.sinks.notify.sender", "sidecar.core", "sidecar.core sidecar.core.bounds sidecar.core.message"),
        ("sidecar.sinks.notify.notifier", "apprise", ""),
    ],
)
def test_apprise_and_the_sidecar_do_not_meet(module: str, package: str, loaded: str) -> None:
    """A sender starts fast because it loads two small modules of the core, and the sidecar is small because it loads no Apprise."""
    code = f"import sys, {module}; print(*sorted(name for name in sys.modules if name.startswith({package!r})))"
    assert subprocess.check_output([sys.executable, "-I", "-c", code], text=True, timeout=60) == f"{loaded}\n"


def test_a_sender_loads_one_plugin(web: HttpReceiver) -> None:
    """All of them would double its memory above a bare interpreter's."""
    code = (
        "import sys; from sidecar.net.endpoints import AppriseUrl; from sidecar.net.endpoints import Secret; "
        "from sidecar.core.message import Message; from sidecar.sinks.notify.sender import send; "
        "print(send(Message('t', 'b', 'info', reason='FIRST', receiver='ops'), AppriseUrl(Secret(sys.argv[1])), 5.0).outcome, "
        "*[name for name in sys.modules if name in {'apprise.plugins.custom_json', 'apprise.plugins.discord'}])"
    )
    printed = subprocess.check_output([sys.executable, "-I", "-c", code, web.url], text=True, timeout=60)
    assert printed == "delivered apprise.plugins.custom_json\n"
