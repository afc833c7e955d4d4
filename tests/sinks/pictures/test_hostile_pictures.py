"""Any answers from the leader's published address become a bounded picture or a problem, never an exception."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.core.pictures import Picture, PictureRequest
from sidecar.net.rest_client import RestConnection, RestError
from sidecar.runtime.clock import Clock
from sidecar.sinks.pictures.described_cluster import DescribedCluster
from tests.kit import hostile
from tests.kit.cluster import CLUSTER
from tests.kit.flink_rest_server import Answer, RestServer
from tests.kit.groups import examples
from tests.kit.pictured_flink import completed, job_id, listed, pictured, statistics
from tests.sinks.pictures.conftest import Take

STATUSES = st.sampled_from([200, 200, 200, 200, 404, 400, 401, 302, 500, 503])
ERRORS = hostile.objects({"errors": st.lists(hostile.texts(), max_size=2)})


def like(value: Any) -> st.SearchStrategy[Any]:
    """What looks like this answer of Flink's: any field may be missing, or be anything."""
    if isinstance(value, dict):
        return hostile.objects({key: like(field) for key, field in value.items()})
    if isinstance(value, list):
        return st.lists(st.one_of(*map(like, value)), max_size=3) if value else st.just([])
    return st.just(value) | (hostile.texts() if isinstance(value, str) else hostile.numbers())


def answers(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Answer]:
    return st.tuples(hostile.documents(of | ERRORS), STATUSES).map(lambda drawn: Answer(*drawn))


TRUE = pictured(listed(), checkpoints=statistics(completed(42), completed(41), restored=40))
CHECKPOINTS = f"/jobs/{job_id(1)}/checkpoints"
HOSTILE = st.fixed_dictionaries({path: answers(like(given[0].body)) for path, given in TRUE.items()})
ONE_LIES = st.sampled_from(sorted(TRUE)).flatmap(
    lambda path: answers(like(TRUE[path][0].body)).map(
        lambda lie: {each: given[0] for each, given in TRUE.items()} | {path: lie}
    )
)


@given(st.lists(HOSTILE | ONE_LIES, min_size=2, max_size=2))
@settings(deadline=None, max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])
def test_any_answers_make_a_picture_or_a_problem(rounds: list[dict[str, Answer]]) -> None:
    """And what was read before does no harm to the next picture."""
    with RestServer({path: [given[path] for given in rounds] for path in TRUE}) as server:
        described = DescribedCluster(server.address, RestConnection(server.address, _no_tls), Clock())
        for _ in rounds:
            picture, problem = taken(described)
            assert problem.isprintable()
            assert len(problem) < 400
            if picture:
                assert_is_plausible(picture)
        described.close()


def taken(described: DescribedCluster) -> tuple[Picture | None, str]:
    """A picture, or the problem; any other exception fails the test."""
    try:
        return described.picture(PictureRequest(CLUSTER, described.address, thorough=True)), ""
    except RestError as error:
        return None, str(error)


def assert_is_plausible(picture: Picture) -> None:
    """What the core takes for granted, and the journal."""
    msgspec.json.encode(picture)
    for job in picture.jobs:
        assert job.name.isprintable()
        if job.checkpoints:
            numbers = [checkpoint.id for checkpoint in job.checkpoints.completed]
            assert numbers == sorted(set(numbers))
            assert all(checkpoint.triggered_at >= job.started_at for checkpoint in job.checkpoints.completed)
            assert job.checkpoints.interval is None or job.checkpoints.interval > 0
    assert all(text.isprintable() for pair in picture.applications or () for text in pair)
    assert all(task_manager.id.isprintable() for task_manager in picture.task_managers or ())


@pytest.mark.parametrize("path", sorted(TRUE))
def test_an_answer_nested_too_deep_is_no_exception(take: Take, path: str) -> None:
    """Wherever it is: with the rest as it should be."""
    for body in hostile.nested({"jobs": [], "latest": {}}):
        with RestServer({**TRUE, path: [Answer(body)]}) as server:
            answer = take(server.address)
        assert "unexpected" not in (answer.problem or "")


def _no_tls() -> Any:
    raise AssertionError("not an address with https")
