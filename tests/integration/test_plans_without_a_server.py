"""What the readers of plans make of the API server's refusals. `test_kubernetes_plans` has a real one."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from sidecar.core.flink.deployments import FlinkDeployment
from sidecar.drivers.kubernetes.access import ApiError
from sidecar.drivers.kubernetes.api import Selector
from sidecar.drivers.kubernetes.makers import Namespaces
from sidecar.drivers.kubernetes.objects import flink_deployment, read_terminating
from sidecar.drivers.kubernetes.plan_watch import ObjectWatch


class Refusing:
    """An API server that answers with this status."""

    qualified = False
    where = "namespace flink"

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status
        self.asked = 0

    def pages(self, *_: object) -> Iterator[Any]:
        raise ApiError("no", self.status)

    def exchange(self, *_: object) -> bool:
        self.asked += 1
        raise ApiError("no", self.status)

    def reopen(self) -> None: ...


class Heard:
    """What was reported, and which refusals."""

    def __init__(self) -> None:
        self.lists: list[Mapping[str, FlinkDeployment]] = []
        self.refusals: list[bool] = []

    def listed(self, items: Mapping[str, FlinkDeployment], *, complete: bool) -> None:
        assert complete
        self.lists.append(items)

    def changed(self, name: str, value: FlinkDeployment, *, deleted: bool = False) -> None: ...

    def lost(self) -> None: ...


def answers(status: HTTPStatus) -> Heard:
    """What is made of a list that is answered so."""
    heard = Heard()
    server: Any = Refusing(status)
    selector = Selector(kind="FlinkDeployment", group="flink.apache.org/v1beta1")
    watch = ObjectWatch(server, selector, flink_deployment, heard, "it is not known", heard.refusals.append)
    watch._failed(ApiError("no", status))
    return heard


def test_a_refusal_is_reported_and_a_kind_that_is_not_installed_has_no_objects() -> None:
    """Of anything else nothing is known."""
    refused, absent, down = map(answers, (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.BAD_GATEWAY))
    assert (refused.lists, refused.refusals) == ([], [True])
    assert (absent.lists, absent.refusals) == ([{}], [False])
    assert (down.lists, down.refusals) == ([], [])


def test_a_namespace_that_may_not_be_read_is_asked_for_once() -> None:
    """Each deletion would be a request else, and a line in the log."""
    server: Any = Refusing(HTTPStatus.FORBIDDEN)
    namespaces = Namespaces(server, "flink")
    assert [namespaces.ended_with(name) for name in ("a", "b")] == ["", ""]
    assert server.asked == 1


def test_a_namespace_is_being_deleted_by_its_phase_or_its_deletion() -> None:
    """Either is enough."""
    assert read_terminating(b'{"metadata": {"name": "a"}, "status": {"phase": "Terminating"}}')
    assert read_terminating(b'{"metadata": {"name": "a", "deletionTimestamp": "2026-11-28T00:00:00Z"}}')
    assert not read_terminating(b'{"metadata": {"name": "a"}, "status": {"phase": "Active"}}')
