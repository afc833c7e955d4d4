"""Whether a cluster's ConfigMaps, and the rights to them, hold in a failover; and what dead clusters and jobs left behind."""

import re
from collections.abc import Sequence
from typing import Final

from sidecar.core.counted import counted, data_size, listed
from sidecar.core.flink.configmaps import DEFAULT_LEASE, cluster_config_map
from sidecar.core.ha.finding import Finding, UnknownFact, passes, risk, unknown
from sidecar.core.ha.kubernetes_facts import COMPONENTS, HaConfigMap, KubernetesFacts, Right
from sidecar.core.moment import SECOND, age, parsed, seconds
from sidecar.core.sanitize import clean

_LARGEST: Final = 1 << 20
"""Bytes of all values of a ConfigMap: the API server refuses more."""
_NEAR: Final = _LARGEST * 3 // 4
_LEFT_AFTER: Final = 24 * 3600 * SECOND
"""How long without a renewal a lease counts as abandoned. Far beyond any difference of clocks."""
_SETTLED_AFTER: Final = 300 * SECOND
"""How long a leader may take to publish all of its components: it recovers its jobs meanwhile."""
_MOST_NAMED: Final = 5
_ELECTION: Final = "high-availability.kubernetes.leader-election."
_JOB_MAP: Final = re.compile(r"(.+)-([0-9a-f]{32})-config-map")
_FLINK_LABEL: Final = "type=flink-native-kubernetes"


def lease_margin(facts: KubernetesFacts) -> Finding:
    """Whether a leader gives up before another one may take its lease."""
    times = facts.election
    if isinstance(times, UnknownFact):
        lease = facts.leaders.lease if isinstance(facts.leaders, HaConfigMap) else None
        held = (
            f"the lease lasts {seconds(lease.lease_duration)}"
            if lease and lease.holder_identity
            else "no lease is held"
        )
        default = (
            ", and Flink's default of renew-deadline is 15 s" if lease and lease.lease_duration == DEFAULT_LEASE else ""
        )
        return unknown(f"{held}{default}; which renew-deadline this cluster has is not known: {times.reason}")
    both = f"lease-duration {seconds(times.lease_duration)}, renew-deadline {seconds(times.renew_deadline)}"
    if times.renew_deadline < times.lease_duration:
        return passes(both)
    return risk(
        f"{both}: no margin. A leader that cannot renew gives up no earlier than another JobManager may take over",
        f"set {_ELECTION}renew-deadline well below lease-duration (10 s of 15 s): else two may lead for a moment",
    )


def sidecar_rights(facts: KubernetesFacts) -> Finding:
    """Whether the sidecar may do what its settings ask of it."""
    rights = facts.own_rights
    if isinstance(rights, UnknownFact):
        return unknown(rights.reason)
    missing = [right for right in rights if not right.allowed]
    if not missing:
        return passes(f"{counted(len(rights), 'right')}: all that the settings need")
    purposes = ", ".join(dict.fromkeys(right.purpose for right in missing))
    return risk(f"the sidecar may not {_verbs(missing)}: needed for {purposes}", f"add to its Role: {_rules(missing)}")


def flink_rights(facts: KubernetesFacts) -> Finding:
    """Whether Flink may write its own ConfigMaps."""
    rights = facts.flink_rights
    if isinstance(rights, UnknownFact):
        return unknown(rights.reason)
    missing = [right for right in rights.rights if not right.allowed]
    if not missing:
        return passes(f"service account {clean(rights.account)} has all verbs on configmaps that Flink uses")
    patch = (
        " (Flink 1.18 and newer renew the lease by patch)" if any(right.verb == "patch" for right in missing) else ""
    )
    return risk(
        f"service account {clean(rights.account)} may not {_verbs(missing)}{patch}",
        f"add to the Role of Flink's service account: {_rules(missing)}",
    )


def config_map_size(facts: KubernetesFacts) -> Finding:
    """Whether Flink may soon be unable to write: a ConfigMap holds 1 MiB."""
    config_maps = facts.config_maps
    all_maps = () if isinstance(config_maps, UnknownFact) else config_maps
    own = [config_map for config_map in all_maps if config_map.app == facts.cluster_id]
    leaders = facts.leaders if isinstance(facts.leaders, HaConfigMap) else None
    if leaders and all(config_map.name != leaders.name for config_map in own):
        own.append(leaders)
    near = [config_map for config_map in sorted(own, key=_size, reverse=True) if config_map.size >= _NEAR]
    if near:
        sizes = ", ".join(f"{clean(config_map.name)} {data_size(config_map.size)}" for config_map in near[:_MOST_NAMED])
        return risk(
            f"near the limit of {data_size(_LARGEST)}: {sizes}",
            "keep fewer checkpoints (state.checkpoints.num-retained) or jobs in one cluster, and remove leftovers: beyond the limit Flink "
            "can neither renew its lease nor complete a checkpoint",
        )
    if isinstance(config_maps, UnknownFact):
        leaders_size = f"{leaders.name} has {data_size(leaders.size)}; " if leaders else ""
        return unknown(f"{leaders_size}the ConfigMaps of jobs are not known: {config_maps.reason}")
    if not own:
        return unknown(f"namespace {facts.namespace} has no ConfigMap of this cluster")
    largest = max(own, key=_size)
    return passes(
        f"the largest of {len(own)}, {clean(largest.name)}, has {data_size(largest.size)} of {data_size(_LARGEST)}"
    )


def erased_leaders(facts: KubernetesFacts) -> Finding:
    """Whether a component's leader is missing for good while the lease is renewed (FLINK-40114)."""
    first, later = facts.leaders, facts.leaders_later
    if isinstance(first, UnknownFact):
        return unknown(first.reason)
    if first is None or not first.lease or not first.lease.holder_identity:
        return unknown(f"nobody holds the lease in a ConfigMap {cluster_config_map(facts.cluster_id)}")
    missing = COMPONENTS - first.components - (later.components if later else frozenset())
    if not missing:
        return passes("all components have a published leader")
    names = f"without a published leader: {', '.join(sorted(component.replace('_', ' ') for component in missing))}"
    led = _renewed_for(first, later) if later else None
    if led is None:
        return unknown(
            f"{names}; whether the holder of the lease renews it is not known: a failover may be in progress"
        )
    if led < _SETTLED_AFTER:
        return unknown(f"{names}; the JobManager leads for {age(led)}, and may still recover its jobs")
    return risk(
        f"{names}; the JobManager that holds the lease has renewed it for {age(led)}",
        "delete the leading JobManager's pod: nothing else writes the leader again (FLINK-40114), and nobody finds the component",
    )


def _renewed_for(first: HaConfigMap, later: HaConfigMap) -> int | None:
    """For how long the same holder has renewed its lease, by its own clock. None: it did not between the two reads."""
    if first.lease is None or later.lease is None or first.lease.holder_identity != later.lease.holder_identity:
        return None
    if first.lease.acquire_time != later.lease.acquire_time or first.lease.renew_time == later.lease.renew_time:
        return None
    acquired, renewed = _wall(first.lease.acquire_time), _wall(later.lease.renew_time)
    return None if acquired is None or renewed is None else renewed - acquired


def leftover_clusters(facts: KubernetesFacts) -> Finding:
    """Whether the namespace has HA data of clusters that nobody leads."""
    config_maps = facts.config_maps
    if isinstance(config_maps, UnknownFact):
        return unknown(config_maps.reason)
    others = [
        config_map
        for config_map in config_maps
        if config_map.name == cluster_config_map(config_map.app) and config_map.app != facts.cluster_id
    ]
    unled_for = {config_map.app: _unled_for(config_map, facts.read_at) for config_map in others}
    leftovers = {
        app: unled
        for app, unled in unled_for.items()
        if unled is not None and unled >= _LEFT_AFTER and not _is_deployed(facts, app)
    }
    if not leftovers:
        return passes(
            f"{counted(len(others), 'other cluster')} in namespace {facts.namespace}, none of them left behind"
        )
    oldest = sorted(leftovers, key=lambda app: -leftovers[app])
    names = listed([f"{clean(app)} ({age(leftovers[app])})" for app in oldest], _MOST_NAMED)
    return risk(
        f"HA ConfigMaps of {counted(len(leftovers), 'cluster')} without a leader: {names}{_unsure(facts)}",
        "a cluster that is started again with this id recovers the old jobs. If none will be: "
        + "; ".join(
            f"kubectl -n {facts.namespace} delete configmap -l app={clean(app)},{_FLINK_LABEL}"
            for app in oldest[:_MOST_NAMED]
        ),
    )


def leftover_jobs(facts: KubernetesFacts) -> Finding:
    """Whether the cluster has checkpoints' ConfigMaps of jobs that Flink will not recover."""
    config_maps, leaders = facts.config_maps, facts.leaders
    if isinstance(config_maps, UnknownFact):
        return unknown(config_maps.reason)
    if isinstance(leaders, UnknownFact):
        return unknown(leaders.reason)
    if leaders is None:
        return unknown(f"there is no ConfigMap {cluster_config_map(facts.cluster_id)}")
    own = [
        (config_map, match[2])
        for config_map in config_maps
        if config_map.app == facts.cluster_id and (match := _JOB_MAP.fullmatch(config_map.name))
    ]
    leftovers = [
        config_map
        for config_map, job in own
        if job not in leaders.jobs and config_map.created_at and facts.read_at - config_map.created_at >= _LEFT_AFTER
    ]
    if not leftovers:
        return passes(f"{counted(len(own), 'ConfigMap')} of checkpoints, of jobs in {leaders.name}")
    oldest = sorted(leftovers, key=lambda config_map: config_map.created_at or 0)
    names = [clean(config_map.name) for config_map in oldest]
    since = age(facts.read_at - (oldest[0].created_at or facts.read_at))
    text = f"{counted(len(leftovers), 'ConfigMap')} of checkpoints of jobs that Flink would not recover"
    return risk(
        f"{text}, the oldest made {since} ago: {listed(names, _MOST_NAMED)}",
        "their checkpoints are kept in the storage for nothing, or a job was lost (docs/explanation/recovery.md). If the jobs ended: "
        f"kubectl -n {facts.namespace} delete configmap {' '.join(names[:_MOST_NAMED])}",
    )


def _size(config_map: HaConfigMap) -> int:
    return config_map.size


def _unled_for(config_map: HaConfigMap, now: int) -> int | None:
    """How long the lease has not been renewed (microseconds), by the times that the last holder wrote. None: not known."""
    lease = config_map.lease
    renewed = _wall(lease.renew_time) if lease else None
    last = max((time for time in (renewed, config_map.created_at) if time is not None), default=None)
    return None if last is None else now - last


def _is_deployed(facts: KubernetesFacts, app: str) -> bool:
    """Whether somebody keeps the cluster, suspended or scaled to none: its HA data is what it continues from."""
    flink = facts.flink_deployments
    workloads = () if isinstance(facts.workloads, UnknownFact) else facts.workloads
    return (not isinstance(flink, UnknownFact) and app in flink) or any(
        app in {workload.name, workload.labels.get("app")} for workload in workloads
    )


def _unsure(facts: KubernetesFacts) -> str:
    hidden = [
        name
        for name, value in (("FlinkDeployments", facts.flink_deployments), ("Deployments", facts.workloads))
        if isinstance(value, UnknownFact)
    ]
    return f". Whether they are only suspended is not known: {' and '.join(hidden)} cannot be read" if hidden else ""


def _wall(text: str) -> int | None:
    try:
        return parsed(text)
    except (ValueError, OverflowError):
        return None


def _verbs(missing: Sequence[Right]) -> str:
    by_object: dict[str, list[str]] = {}
    for right in missing:
        by_object.setdefault(f"{right.resource} {right.name}".strip(), []).append(right.verb)
    return "; ".join(f"{', '.join(verbs)} {target}" for target, verbs in by_object.items())


def _rules(missing: Sequence[Right]) -> str:
    return ", ".join(dict.fromkeys(right.rule for right in missing))
