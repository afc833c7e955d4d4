"""One message per incident in Slack, updated in place, with what happened in its thread; and each way to fail is one clear line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core.message import Message
from sidecar.net.endpoints import Secret
from sidecar.net.endpoints import Slack as Endpoint
from sidecar.sinks.notify import sender
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.paging import CHANNEL, TOKEN, Internet, Reply, Slack
from tests.kit.serving import serving

ENDPOINT = Endpoint(Secret(TOKEN), CHANNEL, "https://slack.com/api")
FIRST = Message(
    "[CRITICAL] Flink orders: no leader for <!channel> & dispatcher",
    "dispatcher: no leader since 10:00 <!here> <https://evil.example|click>",
    "critical",
    reason="FIRST",
    receiver="ops",
    incident="incident-1",
    thread="thread-1",
    goes_on=True,
    facts=(("cluster", "orders"),),
    link="https://pods.example/episodes/1",
)
WELL = {"status": "OK", "colour": "green", "kind": "success"}
OVER = replace(FIRST, reason="RESOLVED", goes_on=False, title="[OK] Flink orders: 3 of 3 jobs run again", **WELL)


def send(message: Message, endpoint: Endpoint = ENDPOINT) -> Answer:
    """One attempt."""
    return sender.send(message, endpoint, 10.0)


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    """Where Slack is."""
    with serving(Internet(tmp_path_factory.mktemp("internet"), Slack())) as served:
        yield served


@pytest.fixture
def slack(internet: Internet, monkeypatch: pytest.MonkeyPatch) -> Slack:
    """Slack, with an empty channel."""
    for name, value in internet.environment.items():
        monkeypatch.setenv(name, value)
    found = internet.services["slack.com"] = Slack()
    internet.fault = lambda: 0
    return found


def colours(slack: Slack) -> list[str]:
    """Of the messages in the channel."""
    return [message["attachments"][0]["color"] for message in slack.messages]


@pytest.mark.covers("receiver:slack")
def test_a_message_is_updated_and_its_thread_tells_the_story(slack: Slack) -> None:
    """Whoever sends it: each of these attempts knows nothing of the others."""
    grew = replace(FIRST, reason="GREW", title="[CRITICAL] Flink orders: no leader for 2 components")
    for message in (FIRST, grew, replace(grew, reason="REPEAT_INTERVAL_ELAPSED"), OVER):
        assert send(message) == Answer("delivered")
    (shown,) = slack.messages
    assert shown["text"] == OVER.title
    assert colours(slack) == ["#2eb886"]
    replies = [each["blocks"][0]["text"]["text"].splitlines()[0] for each in slack.threads[shown["ts"]]]
    assert replies == [FIRST.title, grew.title, grew.title, OVER.title]
    broadcast = [fields.get("reply_broadcast") for _, fields in slack.requests if "thread_ts" in fields]
    assert broadcast == [None, "true", "true", None]


def test_what_is_over_is_green_only_if_the_cluster_is_well(slack: Slack) -> None:
    """That nobody knows whether jobs run closes an incident too, in blue."""
    shown = {"status": "UNCHECKED", "colour": "blue", "kind": "info"}
    for message in (FIRST, replace(OVER, **shown)):
        assert send(message) == Answer("delivered")
    assert colours(slack) == ["#439fe0"]


def test_the_next_incident_is_a_message_of_its_own(slack: Slack) -> None:
    """Also if it has the same key, and among the messages of others."""
    for message in (FIRST, OVER):
        assert send(message) == Answer("delivered")
    slack.messages += [{"ts": f"{number}", "text": "hello"} for number in range(20)]
    assert send(replace(FIRST, thread="thread-2")) == Answer("delivered")
    assert [incident.is_open for incident in slack.incidents] == [False, True]


def test_an_attempt_that_arrived_is_not_repeated(slack: Slack) -> None:
    """The same once more, by any sidecar: the same message. An incident of events is over from the start, and is the same message, too."""
    for message in (FIRST, FIRST, OVER, OVER):
        assert send(message) == Answer("delivered")
    event = replace(FIRST, thread="thread-2", goes_on=False)
    for message in (event, event):
        assert send(message) == Answer("delivered")
    assert len(slack.messages) == 2


def test_text_of_others_is_no_markup(slack: Slack) -> None:
    """A notification has it escaped, a block shows it as plain text; the only link is that of the page."""
    send(FIRST)
    (message,) = slack.messages
    assert message["text"] == "[CRITICAL] Flink orders: no leader for &lt;!channel&gt; &amp; dispatcher"
    title, link = message["attachments"][0]["blocks"]
    assert title["text"] == {"type": "plain_text", "text": FIRST.title, "emoji": False}
    assert link["text"] == {"type": "mrkdwn", "text": "<https://pods.example/episodes/1|Open the page>"}
    (reply,) = slack.threads[message["ts"]]
    assert reply["blocks"][0]["text"]["type"] == "plain_text"
    send(replace(FIRST, thread="2", incident="2", link="https://x|<!channel>"))
    assert len(slack.messages[-1]["attachments"][0]["blocks"]) == 1


def test_a_message_that_was_deleted_is_posted_anew(slack: Slack) -> None:
    """Somebody has deleted it between two requests: here, while it is being updated."""
    send(FIRST)
    history = slack._history

    def deletes(fields: dict[str, str]) -> dict[str, Any]:
        found = history(fields)
        slack.messages.clear()
        return found

    slack._history = deletes  # type: ignore[method-assign]
    assert send(replace(FIRST, reason="GREW")) == Answer("delivered")
    assert len(slack.messages) == 1


@pytest.mark.parametrize(
    ("error", "outcome", "line"),
    [
        (
            "token_revoked",
            "rejected",
            (
                "Slack answered token_revoked to conversations.history: the token is not valid (any more): "
                "install the app again and replace the token"
            ),
        ),
        (
            "not_in_channel",
            "rejected",
            "Slack answered not_in_channel to conversations.history: invite the bot to the channel",
        ),
        ("ratelimited", "rate_limited", "Slack answered ratelimited to conversations.history"),
        ("internal_error", "timed_out", "Slack answered internal_error to conversations.history"),
        (f"<b>{TOKEN}\n", "rejected", "Slack answered an unknown error to conversations.history"),
    ],
)
def test_what_slack_refuses_is_one_line(slack: Slack, error: str, outcome: str, line: str) -> None:
    """With HTTP 200, as Slack answers; never a delivery."""
    slack.error = error
    assert send(FIRST) == Answer(outcome, line)
    assert slack.messages == []


def test_a_rate_limit_says_how_long_to_wait(slack: Slack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 429 with Retry-After; nothing else is asked for then."""
    limited = Reply(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "30"})
    monkeypatch.setattr(slack, "answer", lambda *_: limited)
    answer = send(FIRST)
    assert (answer.outcome, answer.retry_after) == ("rate_limited", 30)


def test_without_the_scope_for_history_messages_still_arrive(slack: Slack) -> None:
    """Each by itself, and the record says what is missing."""
    slack.missing_scopes = {"conversations.history"}
    for message in (FIRST, OVER):
        answer = send(message)
        assert answer.outcome == "delivered"
        assert answer.detail.endswith("the app needs the scopes chat:write, and channels:history or groups:history")
    assert len(slack.messages) == 2


@pytest.mark.parametrize(
    "body", ["", "[]", "null", '{"ok": 1}', '{"ok": "true"}', "<html>", '{"ok": true}' + " " * (2 << 20)]
)
def test_an_answer_that_is_not_slacks_is_no_delivery(slack: Slack, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A proxy's page, or one without end."""

    class Raw(dict[str, Any]):
        """Its JSON is the body."""

    monkeypatch.setattr(slack, "answer", lambda *_: Reply(200, Raw()))
    monkeypatch.setattr(json, "dumps", lambda value, *_, **__: body if isinstance(value, Raw) else "")
    assert send(FIRST).outcome in {"timed_out", "rejected"}


def test_what_others_write_into_the_channel_does_no_harm(slack: Slack) -> None:
    """Any app may add metadata; a message with garbage in it is none of ours."""
    slack.messages += [
        {"ts": 7, "metadata": {"event_type": "flink_incident", "event_payload": {"incident": FIRST.incident}}},
        {"ts": "8", "metadata": {"event_type": "flink_incident", "event_payload": [1]}},
        {"ts": "9", "metadata": "x"},
        "not a message",
    ]
    assert send(FIRST) == Answer("delivered")
    assert [incident.key for incident in slack.incidents] == [FIRST.incident]


def test_the_token_is_sent_to_slack_alone(slack: Slack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .netrc of the machine does not replace it."""
    (tmp_path / ".netrc").write_text("machine slack.com login a password b\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert send(FIRST) == Answer("delivered")
    slack.requests.clear()
    answer = send(FIRST, replace(ENDPOINT, token=Secret("xoxb-another-0123456789")))
    assert (answer.outcome, answer.detail.split(":")[0]) == (
        "rejected",
        "Slack answered invalid_auth to conversations.history",
    )
