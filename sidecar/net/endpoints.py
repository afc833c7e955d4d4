"""The endpoint of a destination: which kind of service it is, and all that is needed to reach it.

The settings make it, and the short-lived child that sends gets it. A new kind is a struct here, a reader in
`sidecar.settings.alerting.receivers`, and a module that `sidecar.sinks.notify.sender` knows.
"""

import re
from typing import ClassVar, Final

from msgspec import Struct


class Secret:
    """A text that no output shows. Call `reveal` only where it is used."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text: Final = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


_SCHEME: Final = re.compile(r"[a-z][a-z0-9]{0,29}")
INCIDENT_SCHEMES: Final = frozenset(
    (
        *("pagerduty", "opsgenie", "jira", "ilert", "squadcast", "incidentio", "splunk", "victorops"),
        *("firehydrant", "goalert", "goalerts", "opsimate", "opsimates", "pagertree", "signl4"),
    )
)
"""Apprise's schemes of services that keep an incident open until it is closed by its key."""


class AppriseUrl(Struct, frozen=True, tag="apprise"):
    """An entry of `urls`."""

    url: Secret
    native: str = ""
    """Apprise's scheme of the service whose own URL it is (`https://hooks.slack.com/…`: `slack`). Empty: none, or Apprise was not asked."""

    @property
    def scheme(self) -> str:
        """The scheme in lower case; empty if there is none."""
        scheme, separator, _ = self.url.reveal().strip().partition("://")
        return self.native or (scheme.lower() if separator else "")

    @property
    def may_be_native(self) -> bool:
        """True if only Apprise knows the service: no plugin declares these schemes."""
        return self.scheme in {"http", "https"}

    @property
    def service(self) -> str:
        """Apprise's name of the service, printable and short: no part of the URL that may be secret."""
        return self.scheme if _SCHEME.fullmatch(self.scheme) else ""

    @property
    def keeps_incidents(self) -> bool:
        """True if the service keeps an incident open until it is closed."""
        return self.scheme in INCIDENT_SCHEMES

    @property
    def in_order(self) -> bool:
        """True if each message changes what the service shows of the incident."""
        return self.keeps_incidents


class _HttpAccess(Struct, frozen=True, kw_only=True):
    bearer_token: Secret | None = None
    username: str | None = None
    """The user name for basic authentication, with `password`."""
    password: Secret | None = None
    ca_file: str | None = None
    """PEM; None: the CAs of this system."""


class Webhook(_HttpAccess, frozen=True, tag="webhook"):
    """An HTTP endpoint that takes Alertmanager's webhook payload, version 4."""

    service: ClassVar[str] = "webhook"
    keeps_incidents: ClassVar[bool] = True
    in_order: ClassVar[bool] = True

    url: Secret
    hmac_secret: Secret | None = None
    """Signs the body; None: no signature."""


class Slack(Struct, frozen=True, tag="slack"):
    """A channel in Slack, written to by a bot."""

    service: ClassVar[str] = "slack"
    keeps_incidents: ClassVar[bool] = False
    in_order: ClassVar[bool] = True

    token: Secret
    channel: str
    """The id of the channel."""
    api_url: str
    """The URL of the API without a trailing slash."""


class Alertmanager(_HttpAccess, frozen=True, tag="alertmanager"):
    """One Alertmanager of a cluster."""

    service: ClassVar[str] = "alertmanager"
    keeps_incidents: ClassVar[bool] = False
    in_order: ClassVar[bool] = False

    url: Secret
    """The URL of its API, without `/api/v2` and a trailing slash."""
    certificate_file: str | None = None
    """Ours, PEM, with `key_file`."""
    key_file: str | None = None


Endpoint = AppriseUrl | Webhook | Slack | Alertmanager
