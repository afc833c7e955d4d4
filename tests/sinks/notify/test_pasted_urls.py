"""URLs that people paste from a service's page: the error says what to write, and Apprise takes that."""

import pytest

from sidecar.sinks.notify import apprise_sender
from sidecar.sinks.notify.apprise_url import PASTED_URLS, instead, row_of
from tests.kit.receivers import apprise

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

KEY = "0123456789abcdef0123456789abcdef"
UUID = "01234567-89ab-cdef-0123-456789abcdef"
PASTED = [
    (f"https://open.feishu.cn/open-apis/bot/v2/hook/{UUID}", "feishu://TOKEN, with TOKEN of this URL"),
    (f"https://open.larksuite.com/open-apis/bot/v2/hook/{UUID}?a=b", "lark://TOKEN, with TOKEN of this URL"),
    (f"https://oapi.dingtalk.com/robot/send?access_token={KEY}", "dingtalk://TOKEN, with TOKEN of this URL"),
    (f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?debug=1&key={UUID}", "wecombot://TOKEN, with TOKEN of this URL"),
    (f"https://discord.com/api/v10/webhooks/123456789/{KEY}", "discord://ID/TOKEN, with ID and TOKEN of this URL"),
    (f"https://canary.discord.com/api/webhooks/123456789/{KEY}", "discord://ID/TOKEN, with ID and TOKEN of this URL"),
    ("https://api.incident.io/v2/alert_events/http/01GW2G3V0S59R238FAHPDS1R66", "incidentio://SOURCE/TOKEN, with SOURCE of this URL"),
    ("https://api.telegram.org/bot123456789:AAbbccddeeffgghhiijjkkllmmnnoopp123/sendMessage",
     "tgram://TOKEN/CHAT_ID, with TOKEN of this URL"),
    ("https://events.pagerduty.com/v2/enqueue", "pagerduty://INTEGRATION_KEY@API_KEY"),
    (f"https://events.pagerduty.com/integration/{KEY}/enqueue", "pagerduty://INTEGRATION_KEY@API_KEY"),
    (f"https://api.opsgenie.com/v1/json/prometheus?apiKey={UUID}", "opsgenie://API_KEY"),
    ("https://api.eu.opsgenie.com/v2/alerts", "opsgenie://API_KEY?region=eu"),
    (f"https://alert.victorops.com/integrations/generic/20131114/alert/{UUID}", "splunk://ROUTING_KEY@TOKEN, with TOKEN of this URL"),
    ("https://connect.signl4.com/webhook/abcdefgh", "signl4://TOKEN, with TOKEN of this URL"),
    (f"https://api.ilert.com/api/v1/events/prometheus/{KEY}", "ilert://KEY"),
    ("https://api.pushover.net/1/messages.json", "pover://USER_KEY@TOKEN"),
    ("https://acme.zulipchat.com/api/v1/messages", "zulip://BOT_NAME@ORGANIZATION/TOKEN, with ORGANIZATION of this URL"),
    ("https://sctapi.ftqq.com/SCT0123456789abcdef.send", "schan://TOKEN, with TOKEN of this URL"),
    ("https://api.day.app/0123456789abcdefABCDEF/hello", "barks://HOST/TOKEN, with HOST and TOKEN of this URL"),
    ("https://push.example.com/message?token=A.bcdefghijklm12", "gotifys://HOST/TOKEN, with HOST and TOKEN of this URL"),
    ("https://chat.example.com/hooks/5a1c2b3d4e5f6a7b8c9d0e1f/abcdefghijklmnopqrstuvwxyz0123456789",
     "rockets://ID/TOKEN@HOST, with HOST and ID and TOKEN of this URL"),
    ("https://chat.example.com/hooks/abcdefghijklmnopqrstuvwxyz", "mmosts://HOST/TOKEN, with HOST and TOKEN of this URL"),
    ("https://example.com:8443/chat/hooks/abcdefghijklmnopqrstuvwxyz", "mmosts://HOST/TOKEN, with HOST and TOKEN of this URL"),
]  # fmt: skip
GIVEN = {
    "INTEGRATION_KEY": KEY, "API_KEY": UUID.replace("-", ""), "ROUTING_KEY": "ops", "USER_KEY": "u" * 30, "BOT_NAME": "flink",
    "CHAT_ID": "12345678", "TOKEN": "a" * 32, "KEY": KEY,
}  # fmt: skip


@pytest.mark.parametrize(("url", "write"), PASTED)
def test_the_error_says_what_to_write_and_apprise_takes_it(url: str, write: str) -> None:
    """Without a part of the URL, which may be a secret; and no URL is refused that Apprise takes as it is."""
    problem = f"https:// is not how Apprise spells this service: write {write}: see https://appriseit.com/services/"
    assert apprise_sender.problem(apprise(url)) == problem
    row = row_of(url)
    match = row and row.pattern.fullmatch(url.partition("://")[2])
    assert row
    assert match
    spelled = row.write
    for word, value in GIVEN.items():
        spelled = spelled.replace(word, value) if word in row.write.replace("{", " {").split("//")[1] else spelled
    assert apprise_sender.problem(apprise(spelled.format_map(match.groupdict()))) is None


def test_each_row_has_an_example() -> None:
    """One that no example reaches may be wrong."""
    assert {row.write for row in PASTED_URLS} == {row.write for url, _ in PASTED if (row := row_of(url))}


@pytest.mark.parametrize(
    "url",
    [
        "msteams://s3cret@a/b/c",
        "https://acme.webhook.office.com/webhookb2/s3cret@a/IncomingWebhook/b/c",
        "https://outlook.office.com/webhook/s3cret@a/IncomingWebhook/b/c",
    ],
)
def test_a_retired_connector_of_teams_is_named(url: str) -> None:
    """Apprise has no service for them any more."""
    problem = apprise_sender.problem(apprise(url)) or ""
    assert "belongs to the connectors of Office 365, which Microsoft has retired: make a workflow" in problem
    assert "s3cret" not in problem


def test_any_other_url_may_be_a_webhook() -> None:
    """What posts to any URL is another key of the receiver."""
    problem = apprise_sender.problem(apprise("https://example.com/s3cret")) or ""
    assert problem.startswith("https:// names no service that Apprise knows by this URL: ")
    assert "webhook: {url: …}" in problem
    assert "s3cret" not in problem
    assert instead("gopher://example.com") is None


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        f"https://discord.com/api/webhooks/123456789/{KEY}?thread=123",
        f"https://open.larksuite.com/open-apis/bot/v2/hook/{UUID}",
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={UUID}",
        f"https://alert.victorops.com/integrations/generic/20131114/alert/{UUID}/ops",
        "https://api.incident.io/v2/alert_events/http/01GW2G3V0S59R238FAHPDS1R66?token=abc",
        f"https://api.squadcast.com/v2/incidents/api/{KEY}",
        f"https://chat.googleapis.com/v1/spaces/AAAA/messages?key={KEY}&token={KEY}",
        f"https://prod-12.westeurope.logic.azure.com:443/workflows/{KEY}/triggers/manual/paths/invoke?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={KEY}",
        "https://ntfy.sh/topic?priority=high",
        "json://127.0.0.1/hooks/abcdefghijklmnopqrstuvwxyz",
    ],
)
def test_what_apprise_takes_as_it_is_stays(url: str) -> None:
    """Services whose own URLs it knows."""
    assert apprise_sender.problem(apprise(url)) is None
