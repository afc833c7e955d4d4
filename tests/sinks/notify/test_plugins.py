"""Which of Apprise's plugins have a rule of their own for answers: a plugin that is new in Apprise has to be classified."""

import pytest
from apprise import plugins

from sidecar.sinks.notify.refusals import SERVICES

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

_BY_COMMON_WORDS = """
    acs apprise_api awswhatsapp bale betterstack bluesky brevo bulksms chanify cliq cm custom_form custom_json custom_xml d7networks
    dapnet discord dot eight00com emby enigma2 evolution exotel fcm firehydrant flock flowtriq fluxer fortysixelks
    freemobile github goalert google_chat gorush gotify groundmail groupme guilded gupshup home_assistant httpsms
    humhub ifttt ilert incidentio infobip instagram jellyfin jira kakaotalk kaleyra kodi kumulos lametric lauther lfgalarm line
    mailersend mailgun mastodon matrix mattermost messagebird misskey mobilemessage nextcloud nextcloudtalk nostr
    notica notifiarr notifico notifyapp notifyre ntfy octopush office365 opsgenie opsimate pagerduty pagertree parseplatform pinglet
    pingram plivo postmark prowl pushbullet pushed pushjet pushward reddit resend revolt ringcentral rocketchat ryver
    sendgrid sendpulse serwersms ses sfr signal_api signalgrid signl4 simplepush sinch slack smsc smseagle smsmanager
    smstunnel sns sogs sparkpost spike splunk squadcast stackfield streamlabs techuluspush telegram telesign telnyx
    threema trigv twilio twist twitter vapid voipms webexteams whapi whatsapp workflows xmatters youlmk zoom zulip
"""
BY_COMMON_WORDS = frozenset(_BY_COMMON_WORDS.split())
"""Plugins over HTTP without a rule: their answers are read by what answers have in common."""
_NO_HTTP = "amqp aprs blink1 dbus deltachat email glib gnome growl irc macosx mqtt rsyslog smpp syslog windows xmpp"
NO_HTTP = frozenset(_NO_HTTP.split())
"""Plugins without the library `requests`: there is no body of an answer to read."""


def test_every_plugin_of_apprise_is_classified() -> None:
    """A new one: look up whether it refuses with a status of 2xx, and give it a rule if so."""
    installed = {scheme: _module(scheme) for scheme in _schemes()}
    ruled = {module for scheme, module in installed.items() if scheme in SERVICES}
    assert {*installed.values()} - ruled == BY_COMMON_WORDS | NO_HTTP
    assert not BY_COMMON_WORDS & NO_HTTP


def test_every_scheme_of_a_plugin_with_a_rule_has_it() -> None:
    """Another name of the same service is no way around its rule."""
    installed = {scheme: _module(scheme) for scheme in _schemes()}
    ruled = {module for scheme, module in installed.items() if scheme in SERVICES}
    assert [scheme for scheme, module in installed.items() if module in ruled and scheme not in SERVICES] == []


def _schemes() -> list[str]:
    return [*plugins.N_MGR.schemas()]  # type: ignore[no-untyped-call]  # Apprise has no type for it


def _module(scheme: str) -> str:
    return str(plugins.N_MGR[scheme].__module__).removeprefix("apprise.plugins.").partition(".")[0]
