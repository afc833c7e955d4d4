"""Draws what a Slack channel shows of one incident, with its thread: `python -m tests.screenshots.slack FOLDER`.

Slack itself cannot be had: the pictures are drawn from the messages that a local service with its rules holds in the end, by what Slack's
documentation says of blocks and attachments.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from sidecar.core.message import Message
from sidecar.net.endpoints import Secret
from sidecar.net.endpoints import Slack as Endpoint
from sidecar.sinks.notify.sender import send
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.browser import chromium
from tests.kit.paging import CHANNEL, TOKEN, Internet, Slack
from tests.kit.program_page import SCHEMES, in_a_program
from tests.kit.serving import serving

_WIDTHS: Final = (390, 1280)
_ENDPOINT: Final = Endpoint(Secret(TOKEN), CHANNEL, "https://slack.com/api")
_FIRST: Final = Message(
    "[CRITICAL] orders: no leader for JobManager and 14 jobs, jm-a led before",
    "dispatcher: no leader since 2026-11-23T02:46:50.011872Z (previous leader: jm-a, 10.244.1.17:6123)",
    "critical",
    reason="FIRST",
    receiver="ops",
    incident="incident",
    thread="thread",
    goes_on=True,
    facts=(("cause", "jobmanager_lost (medium confidence)"), ("cluster", "orders"), ("observer", "jm-b")),
    link="https://flink-ha.example/episodes/0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11",
)
_OVER: Final = replace(
    _FIRST,
    reason="RESOLVED",
    goes_on=False,
    title="[RESOLVED] orders: leader back for JobManager and 14 jobs after 41 to 49 s",
    body="dispatcher: elected jm-b, 10.244.2.8:6123 at 2026-11-23T02:47:31.404120Z, no published leader for 41 s",
)
_BAR: Final = '<div style="border-left: 4px solid {}; padding: 2px 0 2px 12px; margin: 4px 0">{}</div>'
_PARAGRAPH: Final = '<p style="margin: 4px 0; white-space: pre-wrap; overflow-wrap: anywhere">{}</p>'


def main(folder: Path) -> None:
    """Two messages of one incident, each drawn when it has arrived."""
    slack = Slack()
    with (
        tempfile.TemporaryDirectory() as place,
        serving(Internet(Path(place), slack)) as internet,
        chromium() as browser,
    ):
        os.environ.update(internet.environment)
        for name, message in (("firing", _FIRST), ("resolved", _OVER)):
            assert send(message, _ENDPOINT, 10.0) == Answer("delivered")
            for scheme in SCHEMES:
                page = in_a_program(Path(place), scheme, _channel(slack))
                for width in _WIDTHS:
                    browser.open(page, width)
                    (folder / f"slack-{name}-{scheme}-{width}.png").write_bytes(browser.screenshot())


def _channel(slack: Slack) -> str:
    shown = []
    for message in slack.messages:
        thread = slack.threads.get(message["ts"], [])
        replies = "<hr>".join(_blocks(each["blocks"]) for each in thread)
        indented = f'<div style="margin-left: 24px"><p><b>Thread, {len(thread)} replies</b></p>{replies}</div>'
        shown.append(
            "".join(_BAR.format(part["color"], _blocks(part["blocks"])) for part in message["attachments"]) + indented
        )
    return f'<div style="font: 15px/1.4 sans-serif">{"".join(shown)}</div>'


def _blocks(blocks: Iterable[Mapping[str, Any]]) -> str:
    return "".join(_PARAGRAPH.format(_text(block["text"])) for block in blocks)


def _text(text: Mapping[str, Any]) -> str:
    if text["type"] == "plain_text":
        return escape(text["text"])
    url, _, label = text["text"].strip("<>").partition("|")
    return f'<a href="{escape(url)}">{escape(label)}</a>'


if __name__ == "__main__":
    main(Path(sys.argv[1]))
