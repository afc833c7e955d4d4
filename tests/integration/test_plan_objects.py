"""Answers about FlinkDeployments, pods and nodes: whatever the bytes are, they become a value or a ValueError."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.drivers.kubernetes.objects import (
    Read,
    flink_deployment,
    read_change,
    read_cordoned,
    read_page,
)
from sidecar.drivers.kubernetes.pod_objects import job_manager_pod, seen_event

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *("name", "uid", "namespace", "generation", "deletionTimestamp", "labels", "ownerReferences", "job", "state"),
        *("nodeName", "unschedulable", "observedGeneration", "lifecycleState", "reconciliationStatus", "podIP"),
        *("conditions", "reconciliationTimestamp", "resourceVersion", "continue"),
        *("containers", "containerStatuses", "state", "lastState", "terminated", "exitCode", "finishedAt", "resources"),
        *("limits", "memory", "creationTimestamp", "deletionGracePeriodSeconds", "phase", "reason", "message", "kind"),
        "lastObservedTime",
    ]
)
PARTS = st.dictionaries(KEYS, ANYTHING | st.dictionaries(KEYS, ANYTHING, max_size=3), max_size=6)
OBJECTS = st.dictionaries(
    st.sampled_from(["metadata", "spec", "status", "code", "involvedObject", "lastTimestamp", "reason", "series"]),
    PARTS | ANYTHING,
    max_size=4,
)
READS: list[Read[Any]] = [flink_deployment, job_manager_pod, seen_event]


@pytest.mark.parametrize("read", READS)
@given(items=st.lists(OBJECTS, max_size=3))
def test_a_page_of_anything_is_what_can_be_read_of_it(read: Read[Any], items: list[object]) -> None:
    """An object that cannot be decoded hides no other."""
    good = {"metadata": {"name": "good", "uid": "1"}}
    body = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [*items, good]}).encode()
    page, rest = read_page(body, read, qualified=False)
    assert (page.resource_version, rest) == ("7", "")
    assert page.items[-1].name == "good"
    assert len(page.items) + page.left_out == len(items) + 1


@pytest.mark.parametrize("read", READS)
@given(line=st.binary(max_size=50) | st.builds(lambda o: json.dumps({"type": "ADDED", "object": o}).encode(), OBJECTS))
def test_an_event_of_anything_is_a_change_or_a_value_error(read: Read[Any], line: bytes) -> None:
    """Nothing else is raised; and the same for a node."""
    for decode in (lambda: read_change(line, read, qualified=True), lambda: read_cordoned(line)):
        try:
            decode()
        except ValueError:
            continue


def test_values_of_other_types_count_as_absent() -> None:
    """Also numbers that no JSON holds, and states that no operator writes. Without a reconciliation, the lifecycle says the same."""
    status: dict[str, object] = {"observedGeneration": 2**80, "reconciliationStatus": {"state": ["UPGRADING"]}}
    body = {
        "metadata": {"name": "a", "uid": "u", "generation": True},
        "status": {**status, "lifecycleState": "UPGRADING"},
    }
    page, _ = read_page(
        json.dumps({"metadata": {"resourceVersion": "1"}, "items": [body]}).encode(), flink_deployment, qualified=False
    )
    assert page.items[0].value == FlinkDeployment("u", 0, None, Reconciliation.UPGRADING)
