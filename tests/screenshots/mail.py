"""Draws a mail as it looks on a phone and on a screen, light and dark: `python -m tests.screenshots.mail FOLDER`."""

import sys
import tempfile
from email import message_from_bytes, policy
from pathlib import Path

from tests.kit.browser import chromium
from tests.kit.program_page import SCHEMES, in_a_program
from tests.kit.receivers import mailbox, send_by_url

_TITLE = "[WARNING] orders: JobManager failed over after 4.5 to 11 s, 14 of 14 jobs led"
_MOVED = "jm-a, 10.244.1.17:6123 → jm-b, 10.244.2.8:6123 at 2026-11-23 02:46:54 UTC, no published leader for 0.5 s"
_BODY = f"""\
dispatcher: {_MOVED}, no working leader for 8.8 to 16 s
resource_manager: {_MOVED}
rest_server: {_MOVED}
jobs: 14 of 14 lost their leader, 14 with a leader again (which does not say that they run)

Its lease was not renewed: the JobManager did not shut down cleanly."""
_FACTS = (
    ("cause", "jobmanager_lost (medium confidence)"),
    ("alert", "FlinkLeaderChanged (FIRST)"),
    ("cluster", "orders"),
    ("store", "kubernetes"),
    ("observer", "jm-b"),
    ("env", "prod"),
)
_LINK = "https://flink-ha.example/episodes/0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11"


def main(folder: Path) -> None:
    """Send one mail, and draw what arrived."""
    with mailbox() as receiver:
        send_by_url(receiver.url, _TITLE, _BODY, "warning", 10.0, _FACTS, _LINK)
        (received,) = receiver.received
    part = message_from_bytes(received.raw, policy=policy.default).get_body(("html",))
    assert part is not None
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        for scheme in SCHEMES:
            page = in_a_program(Path(place), scheme, part.get_content())
            for width in (390, 1280):
                browser.open(page, width)
                (folder / f"mail-{scheme}-{width}.png").write_bytes(browser.screenshot())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
