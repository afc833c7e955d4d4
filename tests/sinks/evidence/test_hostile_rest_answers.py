"""Any answer from the leader's published address becomes an evidence item, never an exception."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.sinks.evidence import flink_rest
from tests.kit import hostile
from tests.kit.flink_rest_server import JOB, Answer, RestServer
from tests.kit.groups import examples

RESTORED = hostile.objects(
    {
        "id": hostile.numbers(),
        "restore_timestamp": hostile.numbers(),
        "is_savepoint": st.booleans(),
        "external_path": hostile.texts(),
    }
)
CHECKPOINTS = hostile.objects(
    {
        "counts": hostile.objects({"total": hostile.numbers()}),
        "latest": hostile.objects({"restored": st.none() | RESTORED}),
    }
)
OVERVIEWS = hostile.objects(
    {
        "jobs": st.lists(
            hostile.objects({"jid": st.just(JOB) | hostile.texts(), "name": hostile.texts(), "state": hostile.texts()}),
            max_size=2,
        )
    }
)
ERRORS = hostile.objects({"errors": st.lists(hostile.texts(), max_size=2)})
STATUSES = st.sampled_from([200, 200, 200, 404, 400, 401, 302, 204])
_SECONDS = 20.0


def captured(checkpoints: Answer, overview: Answer, config: Answer) -> list[dict[str, Any]]:
    """What is captured of a server that answers so."""
    answers = {
        f"/jobs/{JOB}/checkpoints": [checkpoints],
        f"/jobs/{JOB}/checkpoints/config": [config],
        "/jobs/overview": [overview],
    }
    with RestServer(answers) as server:
        return list(flink_rest.capture(server.address, [JOB], None, _SECONDS, None))


def answers(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Answer]:
    """Answers with these bodies, and others."""
    return st.tuples(hostile.documents(of | ERRORS), STATUSES).map(lambda drawn: Answer(*drawn))


@given(answers(CHECKPOINTS), answers(OVERVIEWS), answers(hostile.objects({"interval": hostile.numbers()})))
@settings(deadline=None, max_examples=examples(60))
def test_any_answer_makes_one_piece_that_can_be_recorded(checkpoints: Answer, overview: Answer, config: Answer) -> None:
    """Captured, absent or failed, in words without a control character, and it can be written as JSON."""
    (item,) = captured(checkpoints, overview, config)
    assert item["outcome"] in {"captured", "absent", "failed"}
    assert item["detail"].isprintable()
    assert len(json.dumps(item)) < 20_000


@pytest.mark.parametrize("body", hostile.nested({"latest": {"restored": None}, "counts": {}}))
def test_an_answer_nested_too_deep_is_a_failed_piece(body: bytes) -> None:
    """As any other that is no JSON object."""
    (item,) = captured(Answer(body), Answer(body), Answer(body))
    assert (item["outcome"], "no JSON object" in item["detail"]) == ("failed", True)
