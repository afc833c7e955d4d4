"""Carries notifications out: each attempt is a child process that sends one message through Apprise and ends.

A child keeps Apprise out of the resident sidecar, and one that hangs can be ended for certain (docs/adr/0002-send-from-a-child-process.md).
URLs are secrets: a child gets its own on stdin, never in its command line or its environment.
"""

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sidecar.child import Child, NoAnswerError
from sidecar.core.alerting.alerts import Reason
from sidecar.core.cluster.record_lines import DUPLICATE_NOTE
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Severity
from sidecar.sinks.notify.ledger_client import Permit, SharedLedger
from sidecar.threads import ServiceThread

CAPACITY: Final = 1024
"""Deliveries that may wait for a worker. The core hands out one per destination at a time, so there are fewer."""

_GRACE: Final = 3.0
_REAP: Final = 2.0
_CHECK_LIMIT: Final = 30.0
_PAY_EVERY: Final = 1.0

# How bad it is, in Apprise's words.
_TYPES: Final = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}

# What it may take to reach a service. Nothing else: the environment often holds the very secrets that are kept out of sight here.
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "TMPDIR", "TZ", *_CERTIFICATES, *_PROXIES, *map(str.upper, _PROXIES))

_log = logging.getLogger(__name__)


class Attempt(NamedTuple):
    """How one attempt went. `detail` is one line for people, free of secrets."""

    outcome: DeliveryOutcome
    detail: str = ""
    retry_after: int | None = None
    """How long the service asks us to wait, in microseconds."""
    possible_duplicate: bool = False


class Notifier:
    """Sends what it is given, `workers` deliveries at a time, and tells how each attempt ended.

    `urls` are Apprise URLs by destination; `ledgers` are asked before anything is sent, by cluster. An attempt takes at most `time_limit`
    seconds. `settle` is called once for every `send`, with the delivery's id and how it went: from a worker thread, where `send` and
    `stop` say nothing else.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        settle: Callable[[str, Attempt], None],
        ledgers: Mapping[str, SharedLedger] | None = None,
        *,
        time_limit: float = 20.0,
        workers: int = 4,
    ) -> None:
        self._urls = dict(urls)
        self._settle = settle
        self._ledgers = ledgers or {}
        self._time_limit = time_limit
        self._workers = workers
        self._threads: list[ServiceThread] = []
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._sending: set[Child] = set()
        self._mute: set[str] = set()
        """Destinations to which no heartbeat can be sent, as the log says."""
        self._stopping = False
        self._cut_off = False

    def start(self) -> None:
        """Begin to send, also what was given before."""
        with self._changed:
            if self._threads or self._stopping:
                return
            works = [self._begin, *[self._work] * (self._workers - 1)]
            self._threads = [ServiceThread(work, f"notifier-{number}") for number, work in enumerate(works)]
            for thread in self._threads:
                thread.start()

    def stop(self) -> None:
        """End within seconds. What is being sent gets a short grace and is then cut off: TIMED_OUT.

        What still waits is not sent: FAILED, settled from here. May be called twice, or before `start`.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._await_workers(_GRACE)
        with self._changed:
            self._cut_off = True
            for child in self._sending:
                child.kill()
            unsent = list(self._waiting)
            self._waiting.clear()
        self._await_workers(_REAP)
        for delivery in unsent:
            self._report(delivery, Attempt(DeliveryOutcome.FAILED, "not sent: the sidecar is stopping"))

    def adopt(self, urls: Mapping[str, str]) -> None:
        """From here on these are the destinations."""
        self._urls = dict(urls)

    def send(self, delivery: Delivery) -> None:
        """Send soon; never blocks. After `stop`, or beyond CAPACITY, it is settled at once, in the caller's thread: FAILED."""
        with self._changed:
            accepted = not self._stopping and len(self._waiting) < CAPACITY
            if accepted:
                self._waiting.append(delivery)
                self._changed.notify()
        if not accepted:
            reason = "the sidecar is stopping" if self._stopping else f"{CAPACITY} others wait"
            self._report(delivery, Attempt(DeliveryOutcome.FAILED, f"not sent: {reason}"))

    def _await_workers(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def _begin(self) -> None:
        for ledger in self._ledgers.values():
            ledger.begin()
        self._work()

    def _work(self) -> None:
        while True:
            owed = [ledger for ledger in self._ledgers.values() if ledger.owes]
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping, _PAY_EVERY if owed else None)
                if self._stopping:
                    return
                delivery = self._waiting.popleft() if self._waiting else None
            if delivery:
                self._report(delivery, self._attempt(delivery))
            else:
                for ledger in owed:
                    ledger.pay()

    def _attempt(self, delivery: Delivery) -> Attempt:
        """Send it, if nobody else has or is about to. Raises nothing: what a worker holds is settled."""
        ledger = self._ledgers.get(delivery.cluster_id) if delivery.parts else None
        if ledger is None:
            return self._send(delivery)
        permit = ledger.claim(delivery) if delivery.is_shared else Permit(possible_duplicate=True)
        if permit.outcome is not None:
            return Attempt(permit.outcome, permit.detail)
        doubtful = delivery.possible_duplicate or permit.possible_duplicate
        attempt = self._send(replace(delivery, possible_duplicate=doubtful), permit.until)
        ledger.settle(delivery, permit.claim, attempt.outcome)
        return attempt._replace(possible_duplicate=doubtful)

    def _send(self, delivery: Delivery, until: float = math.inf) -> Attempt:
        url = self._urls.get(delivery.destination)
        if url is None:
            return Attempt(DeliveryOutcome.UNDELIVERABLE, "this destination is not configured any more")
        try:
            child = _sender()
        except Exception as error:  # noqa: BLE001  whatever it was, the attempt is settled
            return Attempt(
                DeliveryOutcome.FAILED, f"could not start the sender: {getattr(error, 'strerror', None) or error}"
            )
        with self._changed:
            self._sending.add(child)
            if self._cut_off:
                child.kill()
        try:
            if time.monotonic() > until:  # we were frozen: by now somebody else may be about to tell it
                return Attempt(DeliveryOutcome.FAILED, "not sent: too much time has passed since it was claimed")
            answer = child.ask(_message(delivery, url, self._time_limit), _Answer, self._time_limit)
        except Exception as error:  # noqa: BLE001  whatever it was, the attempt is settled
            known = str(error) if isinstance(error, NoAnswerError) else f"unexpected {type(error).__name__}"
            reason = "the sidecar is stopping" if self._cut_off else known
            return Attempt(DeliveryOutcome.TIMED_OUT, f"{reason}; the message may have arrived")
        finally:
            with self._changed:
                self._sending.discard(child)
            child.end()
        if (
            answer.outcome is DeliveryOutcome.NOT_SENT
            and delivery.is_heartbeat
            and delivery.destination not in self._mute
        ):
            self._mute.add(delivery.destination)  # an alert leaves a record
            _log.warning("heartbeat to %s failed: %s", delivery.destination, answer.detail)
        return Attempt(
            answer.outcome, answer.detail, None if answer.retry_after is None else answer.retry_after * SECOND
        )

    def _report(self, delivery: Delivery, attempt: Attempt) -> None:
        try:
            self._settle(delivery.id, attempt)
        except Exception:  # noqa: BLE001 a worker outlives whatever happens outside, or a destination would be silent for ever
            _log.exception("could not record that delivery %s is %s", delivery.id, attempt.outcome)


def check_urls(urls: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with each URL that nothing can be sent to: one line by destination, free of secrets. Nothing is sent."""
    if not urls:
        return {}
    try:
        child = _sender()
    except OSError as error:
        return dict.fromkeys(urls, f"could not be checked: could not start the sender: {error.strerror}")
    try:
        return child.ask({"urls": dict(urls)}, dict[str, str], _CHECK_LIMIT)
    except NoAnswerError as error:
        return dict.fromkeys(urls, f"could not be checked: {error}")
    finally:
        child.end()


def _sender() -> Child:
    """Raises OSError."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return Child("sidecar.sinks.notify.sender", "the sender", environment)


def _message(delivery: Delivery, url: str, seconds: float) -> dict[str, Any]:
    body = f"{delivery.body}\n\n{DUPLICATE_NOTE}" if delivery.possible_duplicate else delivery.body
    notify_type = "success" if delivery.reason is Reason.RESOLVED else _TYPES[delivery.severity]
    return {
        "url": url,
        "title": delivery.title,
        "body": body,
        "facts": delivery.facts,
        "link": delivery.link,
        "notify_type": notify_type,
        "seconds": seconds,
    }


class _Answer(Struct):
    outcome: DeliveryOutcome
    detail: str
    retry_after: int | None
    """In seconds."""
