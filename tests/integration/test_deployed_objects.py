"""What a cluster is made of, as the API server answers: whatever the bytes are, they become values or a ValueError."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.ha.finding import UnknownFact
from sidecar.core.ha.kubernetes_facts import ElectionTimes, FlinkPod, LivenessProbe, ProbeKind
from sidecar.core.moment import SECOND
from sidecar.drivers.kubernetes.deployed_objects import (
    configured_options,
    deployed_job_managers,
    disruption_budget,
    election_times,
    flink_pod,
    ha_config_map,
    is_allowed,
    workload,
)
from sidecar.drivers.kubernetes.objects import Full, read_object, read_objects
from sidecar.settings.file.settings_error import SettingsError
from tests.kit.hostile import documents, objects, values

ANY: Final = values()
CONTAINERS: Final = st.lists(
    objects(
        {
            "name": st.sampled_from(["flink-main-container", "flink-ha-sidecar"]),
            "env": st.lists(objects({"name": st.just("FLINK_PROPERTIES"), "value": ANY}), max_size=2),
            "args": ANY,
            "resources": objects({"limits": objects({"memory": ANY})}),
            "livenessProbe": objects({"httpGet": objects({"port": ANY}), "periodSeconds": ANY}),
            "volumeMounts": st.lists(objects({"name": ANY, "mountPath": ANY}), max_size=2),
        }
    ),
    max_size=2,
)
SPEC: Final = objects(
    {
        "containers": CONTAINERS,
        "affinity": objects({"podAntiAffinity": ANY}),
        "topologySpreadConstraints": ANY,
        "volumes": st.lists(objects({"name": ANY, "configMap": ANY}), max_size=2),
        "selector": objects(
            {"matchLabels": ANY, "matchExpressions": st.lists(objects({"key": ANY, "values": ANY}), max_size=2)}
        ),
        "minAvailable": ANY,
        "template": ANY,
        "replicas": ANY,
        "jobManager": ANY,
    }
)
METADATA: Final = objects(
    {
        "name": st.sampled_from(["a", "orders-cluster-config-map"]),
        "labels": ANY,
        "annotations": ANY,
        "ownerReferences": ANY,
    }
)
OBJECTS: Final = objects({"metadata": METADATA, "spec": SPEC, "status": ANY, "data": ANY, "binaryData": ANY})
READS: Final[dict[str, Callable[[Any], Any]]] = {
    "pods": flink_pod,
    "budgets": partial(disruption_budget, empty_selects_all=True),
    "workloads": workload("Deployment"),
    "FlinkDeployments": deployed_job_managers,
    "ConfigMaps": ha_config_map,
}
GOOD: Final = {
    "metadata": {"name": "good"},
    "spec": {"template": {"metadata": {"labels": {"component": "jobmanager"}}}},
}


@pytest.mark.parametrize("kind", READS)
@given(items=st.lists(OBJECTS, max_size=3))
def test_an_odd_object_hides_no_other(kind: str, items: list[object]) -> None:
    """Each page of anything is read, up to the last object."""
    read = READS[kind]
    body = json.dumps({"metadata": {"continue": "more"}, "items": [*items, GOOD]}).encode()
    found, rest = read_objects(body, read)
    assert rest == "more"
    assert read(decoded(GOOD)) == found[-1]


@given(body=documents(OBJECTS))
def test_other_bytes_are_a_value_error(body: bytes) -> None:
    """Nothing else is raised: neither of a list nor of an access review."""
    for decode in (lambda: read_objects(body, flink_pod), lambda: is_allowed(body)):
        try:
            decode()
        except ValueError:
            continue


@given(document=OBJECTS)
def test_any_configuration_is_read_or_refused(document: dict[str, Any]) -> None:
    """As `config check` would refuse it."""
    try:
        config_map = decoded(document)
    except ValueError:
        return  # no object at all
    with suppress(SettingsError):
        configured_options(config_map)


def decoded(document: dict[str, Any]) -> Full:
    return read_object(json.dumps(document).encode())


def pod(container: dict[str, Any], **spec: Any) -> FlinkPod:
    main = {"name": "flink-main-container"} | container
    return flink_pod(
        decoded({"metadata": {"name": "jm"}, "spec": {"containers": [{"name": "flink-ha-sidecar"}, main], **spec}})
    )


def test_the_heap_is_the_last_xmx() -> None:
    """Java takes the last one, and arguments come after the environment."""
    assert pod({}).heap_bytes is None
    assert pod({"env": [{"name": "JVM_ARGS", "value": "-Xmx1g -Xmx512m"}]}).heap_bytes == 512 << 20
    assert (
        pod({"env": [{"value": "-Xmx1g"}], "args": ["bash", "-c", "java -Xms1m -Xmx448M -cp a B"]}).heap_bytes
        == 448 << 20
    )
    assert pod({"args": ["-Xmx1e9", "-Xmxlarge"]}).heap_bytes is None


def test_options_of_arguments_and_environment() -> None:
    """Those of memory and leader election alone; a dynamic property wins."""
    appended = "jobmanager.memory.process.size: 2g\ns3.secret-key: hidden\n  jobmanager.memory.heap.size: 1g # why\n"
    container = {
        "env": [{"name": "FLINK_PROPERTIES", "value": appended}],
        "args": ["jobmanager", "-Djobmanager.memory.process.size=1600m", "-D", "s3.access-key=hidden"],
    }
    assert pod(container).properties == {"jobmanager.memory.process.size": "1600m", "jobmanager.memory.heap.size": "1g"}


def test_a_liveness_probe_has_kubernetes_defaults() -> None:
    """Ten seconds, three failures, no delay."""
    assert pod({"livenessProbe": {"httpGet": {"port": "rest"}}}).liveness == LivenessProbe(
        ProbeKind.HTTP, "rest", 0, 10, 3
    )
    assert pod({"livenessProbe": {"exec": {"command": ["x"]}}}).liveness == LivenessProbe(ProbeKind.EXEC, "")


@pytest.mark.parametrize(
    ("spec", "apart"),
    [
        ({}, ""),
        (
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]}
                }
            },
            "",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
                    }
                }
            },
            "required pod anti-affinity",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
                        ]
                    }
                }
            },
            "preferred pod anti-affinity",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            "a required topology spread",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "topology.kubernetes.io/zone"}]},
            "a preferred topology spread",
        ),
    ],
)
def test_what_keeps_pods_apart(spec: dict[str, Any], apart: str) -> None:
    """Rules about nodes, and about zones, which are on different nodes."""
    assert pod({}, **spec).apart == apart


def test_the_size_of_a_config_map_is_in_bytes() -> None:
    """Of values, as Kubernetes counts it: UTF-8, and binary data without its base64."""
    config_map = ha_config_map(decoded({"metadata": {"name": "a"}, "data": {"k": "é"}, "binaryData": {"b": "AAAA"}}))
    assert config_map.size == 2 + 3


def test_the_times_of_leader_election() -> None:
    """Flink's defaults, its spellings, and what is no duration."""
    prefix = "high-availability.kubernetes.leader-election."
    assert election_times({}) == ElectionTimes(15 * SECOND, 15 * SECOND)
    assert election_times({f"{prefix}lease-duration": "1 min", f"{prefix}renew-deadline": "PT20S"}) == ElectionTimes(
        60 * SECOND, 20 * SECOND
    )
    odd = election_times({f"{prefix}lease-duration": "soon"})
    assert isinstance(odd, UnknownFact)
    assert "is not a Flink duration" in odd.reason


@pytest.mark.parametrize("name", ["config.yaml", "flink-conf.yaml"])
def test_flinks_configuration(name: str) -> None:
    """Either file; nested where it is YAML."""
    nested = (
        "jobmanager:\n  memory:\n    process.size: 1600m\n"
        if name == "config.yaml"
        else "jobmanager.memory.process.size: 1600m\n"
    )
    assert configured_options(decoded({"data": {name: nested + "s3.secret-key: hidden\n"}})) == {
        "jobmanager.memory.process.size": "1600m"
    }
