"""A message looks as people like it at each service, and nothing in it is markup, a mention, or anything to load."""

import json
import re
from collections.abc import Iterator, Mapping
from email import message_from_bytes, policy
from email.message import EmailMessage
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.browser import Page, chromium
from tests.kit.program_page import SCHEMES, in_a_program
from tests.kit.receivers import send_by_url
from tests.lab.receivers import HttpReceiver, MailReceiver

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

TITLE = "[CRITICAL] default: no leader for <dispatcher>"
LABELLED = "CRITICAL default: no leader for <dispatcher>"
"""In a page the severity is a label."""
BODY = (
    "dispatcher: no leader since 2026-11-20T08:12:04.882702Z (before: a:1)\n"
    "rest_server: <!channel> <script>alert(1)</script> <img src=http://evil.example/x.png> & [x](javascript:alert(1))\n\n"
    "This may be a duplicate: an earlier attempt may have arrived."
)
FACTS = (("cluster", "default"), ("observer", 'pod-1 "<b>&'), ("team <i>", "@everyone @here *bold* <@U123>"))
LINK = "https://wiki.example/runbook?alert=FlinkNoLeader&env=prod"

PLAIN = f"""{BODY}

cluster: default
observer: pod-1 "<b>&
team <i>: @everyone @here *bold* <@U123>

{LINK}"""

SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops"
DISCORD = "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"


def send(url: str, title: str = TITLE, body: str = BODY, link: str | None = LINK) -> None:
    """One message, which arrives."""
    answer = send_by_url(url, title, body, "failure", 10.0, FACTS, link)
    assert answer == Answer("delivered")


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Mapping[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def arrived(mail: MailReceiver) -> EmailMessage:
    """The one mail."""
    (message,) = mail.received
    return message_from_bytes(message.raw, policy=policy.default)


def part(message: EmailMessage, kind: str) -> str:
    """Its text in HTML, or in plain text."""
    body = message.get_body((kind,))
    assert body is not None
    return "\n".join(str(body.get_content()).splitlines())


def test_a_mail_is_a_small_page(mail: MailReceiver) -> None:
    """Title, lines, facts, link: and no element is there but those."""
    send(mail.url)
    page = Elements(part(arrived(mail), "html"))
    assert arrived(mail)["Subject"] == TITLE
    assert {tag for tag, _ in page.tags} == {"div", "h2", "p", "br", "span", "a"}
    assert [attributes for _, attributes in page.tags if set(attributes) - {"style"}] == [{"href": LINK}]
    assert not any("url(" in (attributes.get("style") or "") for _, attributes in page.tags)
    for text in (LABELLED, *BODY.splitlines(), *(f"{name}: {value}" for name, value in FACTS), LINK):
        assert text in page.text


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    """Chromium."""
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_mail_is_readable_on_each_screen(
    mail: MailReceiver, browser: Page, tmp_path: Path, scheme: str, width: int
) -> None:
    """Nothing is wider than the screen, the label has its colour, all other text that of the mail program."""
    send(mail.url, body=f"{BODY}\n{'x' * 300}")
    browser.open(in_a_program(tmp_path, scheme, part(arrived(mail), "html")), width)
    assert browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert browser.value("getComputedStyle(document.querySelector('h2 span')).backgroundColor") == "rgb(179, 38, 30)"
    colours = "[...document.querySelectorAll('div, h2, p')].map(e => getComputedStyle(e).color)"
    assert (
        browser.value(f"[...new Set({colours})].join()")
        == {"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"}[scheme]
    )


def test_a_mail_can_be_read_as_plain_text(mail: MailReceiver) -> None:
    """The plain-text part has the same content."""
    send(mail.url)
    assert part(arrived(mail), "plain").splitlines() == [LABELLED, "", *PLAIN.splitlines()]


def test_a_url_may_ask_for_plain_mail(mail: MailReceiver) -> None:
    """`format=text` in it is Apprise's own word for that."""
    send(f"{mail.url}&format=text")
    assert arrived(mail).get_content_type() == "text/plain"
    assert part(arrived(mail), "plain").splitlines() == PLAIN.splitlines()


def test_a_page_that_is_too_long_is_sent_as_plain_text(mail: MailReceiver) -> None:
    """Half a page is none."""
    send(mail.url, body="<" * 30_000)
    assert arrived(mail).get_content_type() == "text/plain"
    assert part(arrived(mail), "plain").startswith("<" * 30_000)


@pytest.mark.parametrize("link", ["javascript:alert(1)", "https://a.example/ onclick=x", "data:text/html,x", "", None])
def test_only_a_web_address_is_a_link(mail: MailReceiver, link: str | None) -> None:
    """Anything else is left out."""
    send(mail.url, link=link)
    assert not any(tag == "a" for tag, _ in Elements(part(arrived(mail), "html")).tags)
    assert "alert(1)\n" not in part(arrived(mail), "plain").replace("</script>", "")


def test_a_program_gets_the_text_unchanged(web: HttpReceiver) -> None:
    """A webhook of one's own: nothing is added, removed or interpreted."""
    send(web.url)
    assert [(message.title, message.body) for message in web.received] == [(TITLE, PLAIN)]


def chat(monkeypatch: pytest.MonkeyPatch, web: HttpReceiver, url: str) -> dict[str, Any]:
    """What a chat gets. Their addresses stand in the plugins."""
    from apprise.plugins.discord import NotifyDiscord
    from apprise.plugins.slack import NotifySlack

    monkeypatch.setattr(NotifySlack, "webhook_url", f"http://{web.address}")
    monkeypatch.setattr(NotifyDiscord, "notify_url", f"http://{web.address}")
    send(url, title=f"<!here> @channel {TITLE}")
    (message,) = web.received
    payload: dict[str, Any] = json.loads(message.raw)
    assert re.search(r"@(here|channel|everyone|U123)", json.dumps(payload, ensure_ascii=False)) is None
    return payload


def test_slack_gets_text_without_mentions(monkeypatch: pytest.MonkeyPatch, web: HttpReceiver) -> None:
    """Title, lines, facts and link, coloured by how bad it is; `<!channel>` in an address does not wake everybody."""
    payload = chat(monkeypatch, web, SLACK)
    (attachment,) = payload["attachments"]
    assert payload["mrkdwn"] is False
    assert attachment["color"] == "#A32037"
    assert attachment["title"].startswith("&lt;\u200b!here&gt; @\u200bchannel [CRITICAL]")
    assert "&lt;\u200b!channel&gt; &lt;\u200bscript&gt;" in attachment["text"]
    assert attachment["text"].endswith(LINK.replace("&", "&amp;"))
    assert re.search(r"<(?!\Z)", attachment["title"] + attachment["text"]) is None


def test_discord_gets_text_without_mentions(monkeypatch: pytest.MonkeyPatch, web: HttpReceiver) -> None:
    """There, `@everyone` in a text does wake everybody."""
    payload = chat(monkeypatch, web, DISCORD)
    assert "@\u200beveryone @\u200bhere" in payload["content"]
    assert "cluster: default" in payload["content"]
