"""Sends one message and ends: the short-lived child process of every attempt to deliver.

One JSON line arrives on stdin: a `Request`. One JSON line leaves on stdout: an `Answer`, or what was found out about the endpoints that
were to be checked. When the parent closes stdin, this process ends. It loads little of the sidecar, and only the module of the endpoint's
kind.
"""

from importlib import import_module
from typing import Any, Final, Protocol, cast

import msgspec

from sidecar.core.message import Message
from sidecar.net.endpoints import Alertmanager, AppriseUrl, Endpoint, Slack, Webhook
from sidecar.runtime.answering import answer_once
from sidecar.sinks.notify import sender_protocol
from sidecar.sinks.notify.sender_protocol import Answer, Checked

_MODULES: Final[dict[type[Endpoint], str]] = {
    AppriseUrl: "apprise_sender",
    Webhook: "webhook",
    Slack: "slack",
    Alertmanager: "alertmanager",
}


class _Sender(Protocol):
    """The module of one kind of endpoint."""

    def deliver(self, message: Message, endpoint: Endpoint, seconds: float) -> Answer:
        """Send one message once. The service may take `seconds` to answer."""
        ...

    def problem(self, endpoint: Endpoint) -> str | None:
        """Why nothing can be sent to the endpoint, in one line; None: nothing is wrong. Sends nothing."""
        ...


def send(message: Message, endpoint: Endpoint, seconds: float) -> Answer:
    """Send one message once. The service may take `seconds` to answer."""
    return _sender(endpoint).deliver(message, endpoint, seconds)


def problem(endpoint: Endpoint) -> str | None:
    """Why nothing can be sent to the endpoint: one line without secrets. Sends nothing."""
    return _sender(endpoint).problem(endpoint)


def _sender(endpoint: Endpoint) -> _Sender:
    return cast("_Sender", import_module(f"sidecar.sinks.notify.{_MODULES[type(endpoint)]}"))


def _answer(**fields: Any) -> object:
    request = sender_protocol.read(fields)
    if order := request.order:
        return msgspec.to_builtins(send(order.message, order.endpoint, order.seconds))
    checks = {
        destination: (problem(endpoint), _native(endpoint)) for destination, endpoint in request.endpoints.items()
    }
    problems = {destination: why for destination, (why, _) in checks.items() if why}
    return msgspec.to_builtins(Checked(problems, {name: native for name, (_, native) in checks.items() if native}))


def _native(endpoint: Endpoint) -> str:
    """Apprise's scheme of a URL that a service itself gives out; empty: it is none."""
    if not isinstance(endpoint, AppriseUrl) or not endpoint.may_be_native:
        return ""
    sender: Any = _sender(endpoint)
    return str(sender.native(endpoint.url.reveal()))


if __name__ == "__main__":
    answer_once(_answer)
