"""Text from the store is plain text in every chat: no links, no images, no mentions, and still readable."""

import json
import re
from typing import Any

import pytest

from tests.kit.receivers import send_by_url
from tests.lab.receivers import HttpReceiver

HOSTILE = (
    "<!channel> <@U123> <#C1> <users/all> <https://evil.example|jm-0:6123> <https://evil.example> @here @everyone "
    "[jm-0:6123](https://evil.example) ![x](https://evil.example/x.png) [jm-0:6123][1] [1]: https://evil.example <img src=x>"
)
MARKUP = ("<!", "<@", "<#", "<u", "<h", "<i", "](", "][", "]:", "@here", "@everyone", "@U123")
LINK = "https://wiki.example/@team/[runbook](1)?alert=FlinkNoLeader"
READABLE = "dispatcher: pekko.tcp://flink@jm-0:6123 [WARNING] a < b, 1 <= 2, [x] (y): http://jm-0:8081"

CHATS = {
    "mattermost": "mmost://{address}/3ccdd113474722377935511fc85d3dd4/",
    "ntfy": "ntfy://{address}/topic/",
    "ntfy as Markdown": "ntfy://{address}/topic/?format=markdown",
    "rocketchat": "rocket://web/hook0token1web2hook3token@{address}/#ops/?avatar=no&mode=webhook",
    "discord": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
    "gchat": "gchat://workspace/key/token",
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops",
}


@pytest.fixture(params=CHATS)
def chat(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, web: HttpReceiver) -> str:
    """The URL of a chat: a real plugin, and a server here. Some addresses stand in the plugins."""
    from apprise.plugins.discord import NotifyDiscord
    from apprise.plugins.google_chat import NotifyGoogleChat
    from apprise.plugins.slack import NotifySlack

    monkeypatch.setattr(NotifySlack, "webhook_url", f"http://{web.address}")
    monkeypatch.setattr(NotifyDiscord, "notify_url", f"http://{web.address}")
    monkeypatch.setattr(NotifyGoogleChat, "notify_url", f"http://{web.address}/{{workspace}}")
    return CHATS[str(request.param)].format(address=web.address)


def texts(content: Any) -> list[str]:
    """Every text in a payload."""
    match content:
        case str():
            return [content]
        case dict():
            return [text for value in content.values() for text in texts(value)]
        case list():
            return [text for value in content for text in texts(value)]
    return []


def arrived(web: HttpReceiver, url: str, title: str, body: str, facts: list[tuple[str, str]], link: str | None) -> str:
    """All that the chat gets, without the entities and the backslashes in which some take it: as if it unescaped too much."""
    answer = send_by_url(url, title, body, "failure", 10.0, facts, link)
    assert answer.outcome == "delivered", answer
    raw = "\n".join(message.raw.decode() for message in web.received)
    found = "\n".join(texts(json.loads(raw))) if raw.startswith("{") else raw
    found = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", found)
    return found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def test_markup_from_the_store_is_text(chat: str, web: HttpReceiver) -> None:
    """In the title, the lines and the facts."""
    found = arrived(web, chat, f"leader: {HOSTILE}", f"dispatcher: {HOSTILE}", [("host", HOSTILE)], None)
    assert [markup for markup in MARKUP if markup in found] == []
    assert found.count("evil.example") >= 5  # it is shown for what it is


def test_text_without_markup_arrives_unchanged(chat: str, web: HttpReceiver) -> None:
    """But for `@`, which is one in some chat or other."""
    found = arrived(web, chat, "title", READABLE, [("cluster", "default")], None)
    assert READABLE.replace("@", "@\u200b") in found


def test_the_link_of_the_sidecar_stays_a_link(chat: str, web: HttpReceiver) -> None:
    """It is the operator's own."""
    assert LINK in arrived(web, chat, "title", HOSTILE, [], LINK)
