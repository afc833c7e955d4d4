"""Sends one message and ends: the short-lived child process of every attempt to deliver.

One JSON line arrives on stdin: a `SenderRequest`. One leaves on stdout: an `Answer`, or what was found out about the endpoints that were to
be checked. When the parent closes stdin, this process ends. It loads little of the sidecar, and only the module of the endpoint's
kind.
"""

from importlib import import_module
from typing import Any, Final, cast

import msgspec

from sidecar.core.message import Message
from sidecar.net.endpoints import Alertmanager, AppriseUrl, Endpoint, Slack, Webhook
from sidecar.runtime.answering import answer_once
from sidecar.sinks.notify import sender_protocol
from sidecar.sinks.notify.sender_protocol import Answer, CheckedEndpoints

_MODULES: Final[dict[type[Endpoint], str]] = {
    AppriseUrl: "apprise_sender",
    Webhook: "webhook",
    Slack: "slack",
    Alertmanager: "alertmanager",
}


def send(message: Message, endpoint: Endpoint, seconds: float) -> Answer:
    """Send one message once. The service may take `seconds` to answer."""
    return cast("Answer", _module_of(endpoint).deliver(message, endpoint, seconds))


def _module_of(endpoint: Endpoint) -> Any:
    return import_module(f"sidecar.sinks.notify.{_MODULES[type(endpoint)]}")


def _answer(**fields: Any) -> object:
    request = sender_protocol.read(fields)
    if order := request.order:
        return msgspec.to_builtins(send(order.message, order.endpoint, order.seconds))
    checked = CheckedEndpoints({}, {})
    for destination, endpoint in request.endpoints.items():
        if not isinstance(endpoint, AppriseUrl):
            continue  # the settings have checked it
        apprise = _module_of(endpoint)
        if problem := apprise.problem(endpoint):
            checked.problems[destination] = problem
        if endpoint.may_be_native and (native := apprise.native(endpoint.url.reveal())):
            checked.natives[destination] = native
    return msgspec.to_builtins(checked)


if __name__ == "__main__":
    answer_once(_answer)
