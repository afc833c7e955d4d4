"""The endpoint of a destination: which kind of service it is, and all that is needed to reach it.

The settings make it, and the short-lived child that sends gets it. A new kind is a struct here, a reader in
`sidecar.settings.alerting.receivers`, and a module that `sidecar.sinks.notify.sender` knows.
"""

from msgspec import Struct

from sidecar.secret import Secret


class AppriseUrl(Struct, frozen=True, tag="apprise"):
    """An entry of `urls`."""

    url: Secret


class Webhook(Struct, frozen=True, tag="webhook"):
    """An HTTP endpoint that takes Alertmanager's webhook payload, version 4."""

    url: Secret
    hmac_secret: Secret | None = None
    """Signs the body; None: no signature."""
    bearer_token: Secret | None = None
    username: str | None = None
    """With `password`: basic authentication."""
    password: Secret | None = None
    ca_file: str | None = None
    """PEM; None: the CAs of this system."""


class Slack(Struct, frozen=True, tag="slack"):
    """A channel in Slack, written to by a bot."""

    token: Secret
    channel: str
    """`#name` or an id."""
    api_url: str
    """Without a trailing slash."""


class Alertmanager(Struct, frozen=True, tag="alertmanager"):
    """One Alertmanager of a cluster."""

    url: Secret
    """Where its API is, without `/api/v2` and a trailing slash."""
    bearer_token: Secret | None = None
    username: str | None = None
    """With `password`: basic authentication."""
    password: Secret | None = None
    ca_file: str | None = None
    """PEM; None: the CAs of this system."""
    certificate_file: str | None = None
    """Ours, PEM, with `key_file`."""
    key_file: str | None = None


Endpoint = AppriseUrl | Webhook | Slack | Alertmanager
