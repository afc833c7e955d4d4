"""The receivers of a configuration. What is wrong with an endpoint is an error with its place, and without its secret."""

import re
import ssl
from collections.abc import Iterator
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Struct

from sidecar.core.policy.policy import Feed
from sidecar.net.endpoints import Alertmanager, AppriseUrl, Endpoint, Secret, Slack, Webhook
from sidecar.settings.file.durations import SECOND
from sidecar.settings.file.key import Duration, Key, Matching, keys_of
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting, is_host
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.model import Receiver
from sidecar.settings.tls_and_sasl import TlsSettings

NAME: Final = Matching(re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"), "1 to 64 letters, digits, _, - or .")
UNUSED_URL: Final = "json://127.0.0.1"
"""The URL of every receiver where nothing is sent."""

KINDS: Final = ("urls", "webhook", "slack", "alertmanager")
"""The keys of a receiver that are endpoints."""
_BOT_TOKEN: Final = re.compile(r"xoxb-[A-Za-z0-9-]{8,200}")
_CHANNEL: Final = Matching(
    re.compile(r"[CG][A-Z0-9]{6,20}"), "the id of a channel, like C0123456789: see its details in Slack"
)
_HEADER_TEXT: Final = re.compile(r"[!-~]{1,4096}")
_MOST_CHARACTERS: Final = 4096


def _path(setting: Setting) -> str:
    return str(setting.path().absolute())


def _http_url(setting: Setting) -> str:
    """An http or https URL that requests can be sent to; never shown, because its path may be a secret. Raises SettingsError."""
    text = setting.secret("URL").text
    try:
        url = urlsplit(text)
        usable = url.scheme in {"http", "https"} and is_host(url.hostname or "") and (url.port is None or url.port > 0)
    except ValueError:
        usable = False
    if not usable or not _HEADER_TEXT.fullmatch(text) or "#" in text:
        raise setting.error("is not an http:// or https:// URL")
    if "@" in url.netloc:
        raise setting.error("has credentials before the host: give them as keys of their own")
    return text


def _ca_file(setting: Setting) -> str:
    """A file of certificates, read once. Raises SettingsError."""
    path = setting.path()
    try:
        TlsSettings(ca_file=path).context()
    except (ValueError, ssl.SSLError) as error:
        raise setting.error(str(error)) from error
    return str(path.absolute())


def _token(setting: Setting) -> Secret:
    secret = setting.secret("value")
    if not _HEADER_TEXT.fullmatch(secret.text):
        raise secret.error("must be 1 to 4096 printable ASCII characters without blanks")
    return Secret(secret.text)


def _secret(setting: Setting) -> Secret:
    """A password or key, with the blanks around it unless it is in a file."""
    secret = setting.secret("value")
    text = setting.text if setting.text.strip() == secret.text else secret.text
    return Secret(_printable(secret, text))


def _username(setting: Setting) -> str:
    if ":" in _printable(setting, setting.text):
        raise setting.invalid("has a colon, which no user name of basic authentication may have")
    return setting.text


def _printable(setting: Setting, text: str) -> str:
    """The text, sent as UTF-8 (RFC 7617)."""
    if not 1 <= len(text) <= _MOST_CHARACTERS or not text.isprintable():
        raise setting.error(f"must be 1 to {_MOST_CHARACTERS} printable characters")
    return text


def _bot_token(setting: Setting) -> Secret:
    token = setting.secret("token")
    if not _BOT_TOKEN.fullmatch(token.text):
        raise token.error("is not the token of a bot: it begins with xoxb-")
    return Secret(token.text)


class WebhookKeys(Struct, frozen=True):
    """The keys of `webhook`."""

    url: Annotated[Secret, Key(lambda setting: Secret(_http_url(setting)))]
    """`http://` or `https://`"""
    hmac_secret: Annotated[Secret | None, Key(_secret)] = None
    """signs each request"""
    bearer_token: Annotated[Secret | None, Key(_token)] = None
    """for `Authorization: Bearer …`"""
    username: Annotated[str | None, Key(_username)] = None
    """for basic authentication, with `password`; sent as UTF-8"""
    password: Annotated[Secret | None, Key(_secret)] = None
    """any printable text; blanks around it count, unless it is in a file"""
    ca_file: Annotated[str | None, Key(_ca_file)] = None
    """as in `zookeeper.tls`"""


class SlackKeys(Struct, frozen=True):
    """The keys of `slack`."""

    token: Annotated[Secret, Key(_bot_token)]
    """the token of a bot (`xoxb-…`)"""
    channel: Annotated[str, Key(_CHANNEL)]
    """the id of the channel (`C0123456789`)"""
    api_url: Annotated[str, Key(lambda setting: _http_url(setting).rstrip("/"), "https://slack.com/api")]
    """another Web API, such as GovSlack's"""


class AlertmanagerKeys(Struct, frozen=True, kw_only=True):
    """The keys of `alertmanager`."""

    url: Annotated[Secret, Key()]
    """`http://alertmanager:9093`, or with the prefix of its path"""
    urls: Annotated[tuple[Secret, ...], Key()]
    """a list. Name each Alertmanager of a cluster, not a load balancer"""
    bearer_token: Annotated[Secret | None, Key(_token)] = None
    """as in `webhook`"""
    username: Annotated[str | None, Key(_username)] = None
    """as there"""
    password: Annotated[Secret | None, Key(_secret)] = None
    """as there"""
    ca_file: Annotated[str | None, Key(_ca_file)] = None
    """as there"""
    certificate_file: Annotated[str | None, Key(_path)] = None
    """our certificate, with `key_file`: PEM, not encrypted, read again for each request"""
    key_file: Annotated[str | None, Key(_path)] = None
    event_duration: Annotated[int, Key(Duration(60 * SECOND), "10m")] = 600 * SECOND
    """how long an event (a leader change) fires there. Must be longer than the Alertmanager's `group_wait` and `group_interval`, or nobody
    is notified"""


class ReceiverKeys(Struct, frozen=True):
    """The keys of a receiver."""

    name: Annotated[str, Key(NAME)]
    """letters, digits, `_`, `-`, `.`"""
    urls: Annotated[tuple[AppriseUrl, ...], Key()]
    """[Apprise URLs](https://github.com/caronc/apprise/wiki)"""
    webhook: Annotated[Webhook, Key(inside=(WebhookKeys,))]
    """an HTTP endpoint: [below](#receiverswebhook)"""
    slack: Annotated[Slack, Key(inside=(SlackKeys,))]
    """one message per incident in a channel: [below](#receiversslack)"""
    alertmanager: Annotated[Alertmanager, Key(inside=(AlertmanagerKeys,))]
    """one or more Alertmanagers: [below](#receiversalertmanager)"""
    send_resolved: Annotated[bool, Key(Setting.flag, "true")]
    """whether resolved alerts are sent too"""
    heartbeat: Annotated[int | None, Key(Duration(10 * SECOND))] = None
    """a dead man's switch: only a message this often while the sidecar runs and is connected to every store"""


def receiver(section: Section, *, secrets: bool) -> Receiver:
    """The receiver; one with nothing but a name notifies nobody. Raises SettingsError.

    Without `secrets` each other one has one unused URL, and no secret is read.
    """
    section.value("name")  # a mistake in it is the first, as the name is used elsewhere
    notifies = any(kind in section for kind in KINDS)
    if "urls" in section and not section.items("urls") and not any(kind in section for kind in KINDS[1:]):
        raise no_endpoint_error(section)
    if "heartbeat" in section and not notifies:
        raise section.error("heartbeat", "is for a receiver with an endpoint: give it one, or remove this")
    endpoints = [*_endpoints(section)] if secrets else [(section.location, AppriseUrl(Secret(UNUSED_URL)))] * notifies
    return Receiver(
        **section.values(ReceiverKeys),
        endpoints=tuple(endpoint for _, endpoint in endpoints),
        feed=_feed(section) if "alertmanager" in section else None,
        locations=tuple(location for location, _ in endpoints),
    )


def no_endpoint_error(section: Section) -> SettingsError:
    return section.mistake(f"the receiver has no endpoint: give it at least one of {', '.join(KINDS)}")


def _feed(section: Section) -> Feed:
    for key in keys_of(ReceiverKeys):
        if key in section and key not in {"name", "alertmanager"}:
            raise section.error(key, "is not for a receiver with alertmanager: give it a receiver of its own")
    return Feed(section.section("alertmanager").value("event_duration"))


def _endpoints(section: Section) -> Iterator[tuple[str, Endpoint]]:
    """The endpoints with their locations; those of `urls` first: see `Receiver.endpoints`."""
    for setting in section.texts("urls"):
        yield setting.location, _apprise_url(setting)
    if "webhook" in section:
        webhook = section.section("webhook")
        _check_pairs(webhook, "password")
        yield webhook.location, Webhook(**webhook.values(WebhookKeys))
    if "slack" in section:
        slack = section.section("slack")
        yield slack.location, Slack(**slack.values(SlackKeys))
    if "alertmanager" in section:
        feed = section.section("alertmanager")
        yield from ((feed.location, endpoint) for endpoint in _alertmanagers(feed))


def _apprise_url(setting: Setting) -> AppriseUrl:
    text = setting.secret("URL").text
    if not text:
        raise setting.error("is empty: give an Apprise URL")
    return AppriseUrl(Secret(text))


def _check_pairs(section: Section, *keys: str) -> None:
    """Check that each of `keys` has its partner. Raises SettingsError."""
    if "username" in section and "bearer_token" in section:
        raise section.error("bearer_token", "is for requests without username: remove one of the two")
    for key in keys:
        for present, partner in ((_PARTNERS[key], key), (key, _PARTNERS[key])):
            if present in section and partner not in section:
                error = section.error(present, f"needs {partner}: give it too, or remove this")
                # Of the section: the partner may have been taken out, as a mistake itself.
                raise SettingsError(str(error), section.place)


_PARTNERS: Final = {"password": "username", "key_file": "certificate_file"}


def _alertmanagers(section: Section) -> Iterator[Alertmanager]:
    """The Alertmanagers, one for each URL: every Alertmanager of a cluster gets all alerts, and makes one notification of them with the
    others."""
    _check_pairs(section, "password", "key_file")
    listed = [*filter(None, [section.find("url")]), *section.texts("urls")]
    if not listed:
        raise section.missing("url")
    if "certificate_file" in section:
        _check_certificate(section)
    urls = [Secret(_base_url(setting)) for setting in listed]
    access = section.values(AlertmanagerKeys, "event_duration")
    yield from (Alertmanager(url, **access) for url in urls)


def _base_url(setting: Setting) -> str:
    text = _http_url(setting).rstrip("/")
    if "?" in text or text.endswith(("/api/v1/alerts", "/api/v2", "/api/v2/alerts")):
        raise setting.error("must be where the Alertmanager is, like http://alertmanager:9093: leave the rest out")
    return text


def _check_certificate(section: Section) -> None:
    certificate, key = section.get("certificate_file"), section.get("key_file")
    try:
        TlsSettings(certificate_file=certificate.path(), key_file=key.path()).context()
    except ValueError as error:
        raise certificate.error(str(error)) from error
