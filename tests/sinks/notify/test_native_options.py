"""Options of URLs as services give them out (https://…): what Apprise does not pass on is refused, with the right spelling if known."""

import pytest

from sidecar.sinks.notify import apprise_sender
from tests.kit.receivers import apprise

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

KEY = "0123456789abcdef0123456789abcdef"
UUID = "01234567-89ab-cdef-0123-456789abcdef"
DISCORD = f"https://discord.com/api/webhooks/123456789/{KEY}"
FLOW = f"https://prod-12.westeurope.logic.azure.com:443/workflows/{KEY}/triggers/manual/paths/invoke?api-version=2016-06-01"
SIGNED = f"{FLOW}&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={KEY}"
CHAT = f"https://chat.googleapis.com/v1/spaces/AAAA/messages?key={KEY}&token={KEY}"
SLACK = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
INCIDENT = "https://api.incident.io/v2/alert_events/http/01GW2G3V0S59R238FAHPDS1R66?token=abc"
WEBEX = f"https://webexapis.com/v1/webhooks/incoming/{KEY}{KEY}{KEY}"
SPLUNK = f"https://alert.victorops.com/integrations/generic/20131114/alert/{UUID}/ops"


def problem(url: str) -> str:
    """Without where to read on."""
    return (apprise_sender.problem(apprise(url)) or "").partition(": see https://")[0]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            f"{DISCORD}?thread_id=123",
            "discord:// has no option thread_id: write thread=… if that is meant, or remove it",
        ),
        (f"{DISCORD}?threadId=123", "discord:// has no option threadId: write thread=… if that is meant, or remove it"),
        (
            f"discord://123456789/{KEY}?thread_id=5",
            "discord:// has no option thread_id: write thread=… if that is meant, or remove it",
        ),
        (f"{CHAT}&messageReplyOption=FALLBACK", "gchat:// does not pass on number 3 of its options: remove it"),
        (f"{SLACK}?s3cret=1", "slack:// does not pass on number 1 of its options: remove it"),
        (f"{WEBEX}?x9=1", "wxteams:// does not pass on number 1 of its options: remove it"),
        (f"{SPLUNK}?s3cret=1", "splunk:// does not pass on number 1 of its options: remove it"),
        (
            f"{FLOW}&sp=%2Fother%2Frun&sv=1.0&sig={KEY}",
            "workflow:// does not pass on number 2 of its options: remove it",
        ),
    ],
)
def test_what_is_not_passed_on_is_refused(url: str, expected: str) -> None:
    """It would be lost without a word: a message in another thread, or none at all."""
    assert problem(url) == expected
    assert "s3cret" not in expected


@pytest.mark.parametrize(
    "url",
    [
        DISCORD,
        f"{DISCORD}?thread=123&format=markdown",
        SIGNED,
        CHAT,
        SLACK,
        INCIDENT,
        f"{INCIDENT}&verify=no&rto=3",
        f"https://notica.us/?{KEY[:6]}",
        f"https://www.pushplus.plus/send?token={KEY}&topic=a",
        f"https://cliq.zoho.com/api/v2/channelsbyname/x/message?zapikey=1001.{KEY}.{KEY}",
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={UUID}",
        f"https://acme.xmatters.com/api/integration/1/functions/{UUID}/triggers?apiKey={UUID}&recipients=ops",
        "https://inbots.zoom.us/incoming/hook/AbCdEfGhIjKlMnOpQrStUvWx?token=abc",
        "https://ntfy.sh/topic?priority=high",
        "https://user:pass@api.46elks.com/a1/sms?to=+46766861004&from=x",
    ],
)
def test_what_is_passed_on_is_accepted(url: str) -> None:
    """Also what the service's own URL has in its query, and what Apprise sends in any case."""
    assert problem(url) == ""
