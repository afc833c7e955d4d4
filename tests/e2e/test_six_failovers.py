"""What a person reads at night: six failovers of a real Flink, by the shipped rules."""

import re
from pathlib import Path

import pytest

from sidecar.core.alerting.compose import MOST_BODY, MOST_TITLE
from tests import ROOT
from tests.kit.six_failovers import label, six_failovers
from tests.lab.flink import Lab

PAGE = (ROOT / "docs" / "reference" / "messages.md").read_text()

pytestmark = pytest.mark.e2e


def test_each_message_is_titled_as_in_the_documents(lab: Lab, tmp_path: Path) -> None:
    """It ends with the same status, no title is longer than 80 characters and no text than 600, and what is to be done is said."""
    lab.submit_job()
    failovers = six_failovers(lab, tmp_path)
    steps = re.split(r"^## \d\. ", PAGE, flags=re.MULTILINE)[1:]
    for failover, step in zip(failovers, steps, strict=True):
        titles = re.findall(r"In full:\n\n```\n(.*)\n", step)
        assert label(titles[-1]) in [label(message.title) for message in failover.messages], failover.what
        assert max(len(message.title) for message in failover.messages) <= MOST_TITLE
        texts = [message.body.partition("\n\n")[0] for message in failover.messages]  # behind it are the facts
        assert max(map(len, texts)) <= MOST_BODY
    down, up = failovers[-2].messages[-1], failovers[-1].messages[-1]
    assert down.body.split("\n")[1].startswith("Next: No JobManager contends: start one.")
    assert up.title.startswith("[OK] ")
    assert "Next: " not in up.body
