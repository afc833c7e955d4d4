"""The messages between the notifier and its child process. Imports little of the sidecar, so that a child starts fast."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sidecar.core.message import Message
from sidecar.net.endpoints import Endpoint, Secret


class Answer(Struct, frozen=True):
    """The result of one attempt."""

    outcome: str
    """A value of `DeliveryOutcome`."""
    detail: str = ""
    """One line without secrets."""
    retry_after: int | None = None
    """The time that the service asks to wait, in seconds."""


class Order(Struct, frozen=True):
    """A message to send."""

    message: Message
    endpoint: Endpoint
    seconds: float
    """The time that the service may take to answer."""


class SenderRequest(Struct, frozen=True, omit_defaults=True):
    """A message to send; else endpoints to check, by destination."""

    order: Order | None = None
    endpoints: Mapping[str, Endpoint] = {}


class CheckedEndpoints(Struct, frozen=True):
    """The result of checking endpoints, by destination."""

    problems: dict[str, str]
    """One line without secrets for each unusable one."""
    natives: dict[str, str]
    """Apprise's scheme of each URL that a service itself gives out."""


def written(request: SenderRequest) -> dict[str, Any]:
    """The request for the child's stdin, with its secrets."""
    built: dict[str, Any] = msgspec.to_builtins(request, enc_hook=_reveal)
    return built


def read(request: Mapping[str, Any]) -> SenderRequest:
    """The request in the child."""
    return msgspec.convert(request, SenderRequest, dec_hook=lambda _kind, value: Secret(value))


def _reveal(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError
