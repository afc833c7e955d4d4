"""Sends notifications: each attempt is a child process that sends one message and ends.

The child keeps Apprise out of the resident sidecar, and can be killed when it hangs (docs/project/adr/0002-send-from-a-child-process.md).
Endpoints hold secrets: a child gets its endpoint on stdin, never in its command line or environment.
"""

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from msgspec import json

from sidecar.core.alerting.outbox import Delivery, outgoing
from sidecar.core.bounds import SENDER
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome
from sidecar.net.endpoints import Endpoint
from sidecar.runtime.child import Child, NoAnswerError
from sidecar.runtime.threads import ServiceThread, join_all
from sidecar.sinks.notify import sender_protocol
from sidecar.sinks.notify.ledger_client import SharedLedger
from sidecar.sinks.notify.sender_protocol import Answer, CheckedEndpoints, Order, SenderRequest

CAPACITY: Final = 1024
"""Deliveries that may wait for a worker: more than there are, since the core sends one per destination at a time."""

_GRACE: Final = 3.0
_REAP: Final = 2.0
_CHECK_LIMIT: Final = 30.0
_MARK_EVERY: Final = 1.0

# What a child may need to reach a service. Nothing else: the environment often holds secrets.
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PASSED_ON: Final = ("LD_LIBRARY_PATH", "TMPDIR", "TZ", *_CERTIFICATES, *_PROXIES, *map(str.upper, _PROXIES))

_log = logging.getLogger(__name__)


class Attempt(NamedTuple):
    """The result of one attempt. `detail` is one line without secrets."""

    outcome: DeliveryOutcome
    detail: str = ""
    retry_after: int | None = None
    """The time that the service asks to wait, in microseconds."""
    possible_duplicate: bool = False


class Notifier:
    """Sends deliveries, `workers` at a time, and reports the result of each attempt.

    `endpoints` are by destination, `ledgers` the ledgers by cluster that permit an attempt; the one at `others` is that of all
    other clusters. An attempt takes at most `time_limit`
    seconds. `settle` is called once for every `send`, with the delivery's id and the result: from a worker thread, unless `send` or
    `stop` state otherwise.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        settle: Callable[[str, Attempt], None],
        ledgers: Mapping[str, SharedLedger] | None = None,
        others: str = "",
        *,
        time_limit: float = 20.0,
        workers: int = 4,
    ) -> None:
        self._endpoints = dict(endpoints)
        self._settle = settle
        self._ledgers = ledgers or {}
        self._others = others
        self._time_limit = time_limit
        self._workers = workers
        self._threads: list[ServiceThread] = []
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._asking: list[SharedLedger] = []
        """Those whose answer a worker waits for. Their calls are serialized, so another one would only wait too."""
        self._sending: set[Child] = set()
        self._sendings = threading.BoundedSemaphore(workers)
        """Each needs a process."""
        self._heartbeat_warned: set[str] = set()
        """Destinations whose plugin sends no heartbeat; each is logged once."""
        self._stopping = False
        self._cut_off = False

    def start(self) -> None:
        """Start the workers. They also send earlier deliveries."""
        with self._changed:
            if self._threads or self._stopping:
                return
            # One more for each ledger, whose store may keep a worker waiting: from now on, before any delivery is taken.
            self._asking.extend(self._ledgers.values())
            works: list[Callable[[], None]] = [
                *(partial(self._begin, ledger) for ledger in self._ledgers.values()),
                *[self._work] * self._workers,
            ]
            self._threads = [ServiceThread(work, f"notifier-{number}") for number, work in enumerate(works)]
            for thread in self._threads:
                thread.start()

    def stop(self) -> None:
        """Stop within seconds. Running attempts get a short grace and are then killed: TIMED_OUT.

        Waiting deliveries are not sent and settled from here: FAILED. May be called twice, or before `start`.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        join_all(self._threads, _GRACE)
        with self._changed:
            self._cut_off = True
            for child in self._sending:
                child.kill()
            unsent = list(self._waiting)
            self._waiting.clear()
        join_all(self._threads, _REAP)
        for delivery in unsent:
            self._report(delivery, Attempt(DeliveryOutcome.FAILED, "not sent: the sidecar is stopping"))

    def adopt(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints)

    def send(self, delivery: Delivery) -> None:
        """Send soon; never blocks. After `stop`, or beyond CAPACITY, the delivery is settled in the caller's thread: FAILED."""
        with self._changed:
            accepted = not self._stopping and len(self._waiting) < CAPACITY
            if accepted:
                self._waiting.append(delivery)
                self._changed.notify()
        if not accepted:
            reason = "the sidecar is stopping" if self._stopping else f"{CAPACITY} others wait"
            self._report(delivery, Attempt(DeliveryOutcome.FAILED, f"not sent: {reason}"))

    def _begin(self, ledger: SharedLedger) -> None:
        with self._asked(ledger):
            ledger.begin()
        self._work()

    def _work(self) -> None:
        while True:
            unmarked = any(ledger.has_unmarked for ledger in self._ledgers.values())
            with self._changed:
                self._changed.wait_for(lambda: self._next() or self._stopping, _MARK_EVERY if unmarked else None)
                if self._stopping:
                    return
                if delivery := self._next():
                    self._waiting.remove(delivery)
                ledger = self._ledger_of(delivery) if delivery else self._unmarked()
                if ledger:
                    self._asking.append(ledger)
            if delivery:
                self._report(delivery, self._attempt(delivery))
            elif ledger:
                with self._asked(ledger):
                    ledger.retry_marks()

    def _next(self) -> Delivery | None:
        """The first delivery whose ledger keeps no other worker waiting: a store that hangs delays no other cluster."""
        return next((delivery for delivery in self._waiting if self._is_free(self._ledger_of(delivery))), None)

    def _unmarked(self) -> SharedLedger | None:
        ledgers = self._ledgers.values()
        return next((ledger for ledger in ledgers if ledger.has_unmarked and self._is_free(ledger)), None)

    def _is_free(self, ledger: SharedLedger | None) -> bool:
        return ledger is None or ledger not in self._asking

    def _ledger_of(self, delivery: Delivery) -> SharedLedger | None:
        others = self._ledgers.get(self._others)
        return self._ledgers.get(delivery.cluster_id, others) if delivery.parts else None

    @contextmanager
    def _asked(self, ledger: SharedLedger) -> Iterator[None]:
        """The ledger is asked within; `_asking` has it until then."""
        try:
            yield
        finally:
            with self._changed:
                if ledger in self._asking:
                    self._asking.remove(ledger)
                self._changed.notify_all()

    def _attempt(self, delivery: Delivery) -> Attempt:
        """Send, unless another sidecar has or is about to. Raises nothing: every delivery is settled."""
        ledger = self._ledger_of(delivery)
        if ledger is None:
            return self._send(delivery)
        with self._asked(ledger):
            permit = ledger.claim(delivery)
        if permit.outcome is not None:
            return Attempt(permit.outcome, permit.detail)
        permitted = permit.permitted(delivery)
        with ledger.renewing(delivery, permit) as claim:
            attempt = self._send(permitted, lambda: claim.until)
        ledger.settle(delivery, permit.claim, attempt.outcome)
        return attempt._replace(possible_duplicate=permitted.possible_duplicate)

    def _send(self, delivery: Delivery, until: Callable[[], float] = lambda: math.inf) -> Attempt:
        """`until`: when it must have ended (monotonic)."""
        endpoint = self._endpoints.get(delivery.destination)
        if endpoint is None:
            return Attempt(DeliveryOutcome.UNDELIVERABLE, "this destination is not configured any more")
        with self._sendings:
            if self._cut_off:
                return Attempt(DeliveryOutcome.FAILED, "not sent: the sidecar is stopping")
            return self._send_to(endpoint, delivery, until)

    def _send_to(self, endpoint: Endpoint, delivery: Delivery, until: Callable[[], float]) -> Attempt:
        try:
            child = _sender()
        except Exception as error:  # noqa: BLE001  every attempt is settled
            why = getattr(error, "strerror", None) or error
            return Attempt(DeliveryOutcome.FAILED, f"could not start the sender: {why}")
        with self._changed:
            self._sending.add(child)
            if self._cut_off:
                child.kill()
        try:
            if time.monotonic() > until():  # this process was frozen: another sidecar may be about to send it
                return Attempt(DeliveryOutcome.FAILED, "not sent: too much time has passed since it was claimed")
            request = sender_protocol.written(SenderRequest(Order(outgoing(delivery), endpoint, self._time_limit)))
            answer = child.ask(request, _ANSWER, self._time_limit, until)
            outcome = DeliveryOutcome(answer.outcome)
        except Exception as error:  # noqa: BLE001  every attempt is settled
            reason = str(error) if isinstance(error, NoAnswerError) else f"unexpected {type(error).__name__}"
            if time.monotonic() > until():
                reason = "its claim in the ledger could not be renewed"
            if self._cut_off:
                reason = "the sidecar is stopping"
            return Attempt(DeliveryOutcome.TIMED_OUT, f"{reason}; the message may have arrived")
        finally:
            with self._changed:
                self._sending.discard(child)
            child.end()
        not_sent = outcome is DeliveryOutcome.NOT_SENT
        if not_sent and delivery.is_heartbeat and delivery.destination not in self._heartbeat_warned:
            self._heartbeat_warned.add(delivery.destination)  # unlike an alert, it leaves no record
            _log.warning("heartbeat to %s failed: %s", delivery.destination, answer.detail)
        wait = None if answer.retry_after is None else answer.retry_after * SECOND
        return Attempt(outcome, answer.detail, wait)

    def _report(self, delivery: Delivery, attempt: Attempt) -> None:
        try:
            self._settle(delivery.id, attempt)
        except Exception:  # noqa: BLE001  the worker survives errors of others
            _log.exception("could not record that delivery %s is %s", delivery.id, attempt.outcome)


def check_endpoints(endpoints: Mapping[str, Endpoint]) -> CheckedEndpoints:
    """The endpoints that are unusable, and the services of all. Sends nothing."""
    if not endpoints:
        return CheckedEndpoints({}, {})
    try:
        child = _sender()
    except OSError as error:
        problem = f"could not be checked: could not start the sender: {error.strerror}"
        return CheckedEndpoints(dict.fromkeys(endpoints, problem), {})
    try:
        return child.ask(sender_protocol.written(SenderRequest(endpoints=endpoints)), _CHECKED, _CHECK_LIMIT)
    except NoAnswerError as error:
        return CheckedEndpoints(dict.fromkeys(endpoints, f"could not be checked: {error}"), {})
    finally:
        child.end()


def _sender() -> Child:
    """Raises OSError."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return Child("sidecar.sinks.notify.sender", "the sender", environment, SENDER.most_bytes)


_ANSWER: Final = json.Decoder(Answer)
_CHECKED: Final = json.Decoder(CheckedEndpoints)
