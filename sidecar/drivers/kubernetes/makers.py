"""The makers of JobManagers: Deployments, StatefulSets and Jobs, joined with the pods that they make; and namespaces that are deleted."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from http import HTTPStatus
from threading import Lock
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.flink.deployments import Candidate, FlinkDeployment, Maker, Reconciliation, Seen
from sidecar.core.ha.kubernetes_facts import JOB_MANAGER
from sidecar.core.moment import Moment
from sidecar.core.observations import DeploymentUnreadable, MakerObserved, MakersListed
from sidecar.drivers.kubernetes.access import ApiError
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.objects import Full, mapping, mappings, number, read_terminating, text
from sidecar.drivers.kubernetes.pod_objects import OWN_CONTAINER, JobManagerPod
from sidecar.ports import PlanObserver

NAMESPACES_ROLE: Final = '{apiGroups: [""], resources: [namespaces], verbs: [get]}'
_REFUSED_SECONDS: Final = 600.0

_log = logging.getLogger("sidecar.plans")


class Namespaces:
    """Asks for the namespaces of one scope. Several threads call it: one asks at a time."""

    def __init__(self, api: Api, namespace: str | None) -> None:
        """`namespace`: the only one; None: those that names begin with."""
        self._api = api
        self._namespace = namespace
        self._lock = Lock()
        self._refused_until = 0.0

    def ended_with(self, name: str) -> str:
        """The namespace of what has this name and is deleted, if that is being deleted too; empty: it is not, or that is not known."""
        namespace = self._namespace or name.rpartition("/")[0]
        with self._lock:
            return namespace if namespace and self._is_terminating(namespace) else ""

    def _is_terminating(self, namespace: str) -> bool:
        if time.monotonic() < self._refused_until:
            return False
        try:
            return self._api.exchange("get", Selector(name=namespace, kind="Namespace"), None, read_terminating)
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:
                self._refused_until = time.monotonic() + _REFUSED_SECONDS
                why = f"{error}; the Role needs {NAMESPACES_ROLE}"
                _log.warning("whether a deletion is that of the whole namespace is not known: %s", why)
            return False
        finally:
            self._api.reopen()  # it is asked seldom: no connection is kept


GROUPS: Final[Mapping[Maker, str]] = {Maker.DEPLOYMENT: "apps/v1", Maker.STATEFUL_SET: "apps/v1", Maker.JOB: "batch/v1"}
MOST_HOSTS: Final = 32
"""The most hosts kept of one maker's pods: the latest ones."""

POD: Final = "Pod"
_Key = tuple[Maker, str]
"""Kind and name, which has its namespace where several are read."""


class MakerStatus(Struct, frozen=True):
    """A Deployment, StatefulSet or Job."""

    deployment: FlinkDeployment
    """The maker as a FlinkDeployment, without the action in progress, which takes more than one read."""
    app: str
    makes_job_managers: bool
    """True if the labels of its pods are those of JobManagers."""
    may_make_them: bool
    """True if anything about it suggests JobManagers: people who describe pods themselves choose their labels."""
    native_app: str
    """Its label `app`, if that is certainly a cluster's id."""
    revision: str
    """The revision of its pod template."""
    settled: bool
    """True if its pods are of this revision, and one is ready."""
    mixed: bool
    """True if its pods are of several revisions."""
    owned: bool
    """A FlinkDeployment makes it."""


def maker_status(kind: Maker) -> Callable[[Full], MakerStatus]:

    def read(manifest: Full) -> MakerStatus:
        metadata, spec, status = manifest.metadata, manifest.spec, manifest.status
        labels = mapping(mapping(mapping(spec.template).get("metadata")).get("labels"))
        wanted, observed = number(spec.replicas), number(status.observed_generation)
        every, updated, generation = (
            number(status.replicas),
            number(status.updated_replicas),
            number(metadata.generation),
        )
        settled, mixed = (observed or 0) >= (generation or 0), False
        match kind:
            case Maker.STATEFUL_SET:
                mixed = bool(status.update_revision) and status.update_revision != status.current_revision
            case Maker.DEPLOYMENT:
                mixed = (every or 0) > (updated or 0) > 0
                settled = settled and (updated or 0) == (every or 0) >= (1 if wanted is None else wanted)
        conditions = [
            (text(it.get("type")), it.get("status"), text(it.get("reason"))) for it in mappings(status.conditions)
        ]
        is_job = kind is Maker.JOB
        deployment = FlinkDeployment(
            text(metadata.uid),
            generation or 0,
            None if is_job else observed,
            suspended=spec.suspend is True if is_job else wanted == 0,
            deleting=metadata.deletion_timestamp is not None,
            kind=kind,
            name=text(metadata.name),
            finished=is_job and any(name == "Complete" and on == "True" for name, on, _ in conditions),
            stuck=next((why for _, on, why in conditions if why in _GIVEN_UP and on in {"False", "True"}), ""),
        )
        return MakerStatus(
            deployment,
            text(labels.get("app")),
            labels.get("component") == JOB_MANAGER,
            labels.get("component") == JOB_MANAGER or _may_make_them(labels, spec.template),
            text(labels.get("app")) if text(labels.get("type")).startswith("flink-") else "",
            sha256(msgspec.json.encode(spec.template, order="sorted")).hexdigest()[:16],
            settled=is_job or (settled and not mixed and (number(status.ready_replicas) or 0) > 0),
            mixed=mixed,
            owned=any(owner.get("kind") == Maker.FLINK_DEPLOYMENT for owner in mappings(metadata.owner_references)),
        )

    return read


def _may_make_them(labels: Mapping[str, object], template: object) -> bool:
    """True if pods of this template may be JobManagers: Flink's, but no TaskManagers, nor the operator or this sidecar."""
    if labels.get("component") == "taskmanager" or labels.get("app.kubernetes.io/name") == "flink-kubernetes-operator":
        return False
    others = [
        container
        for container in mappings(mapping(mapping(template).get("spec")).get("containers"))
        if container.get("name") != OWN_CONTAINER and OWN_CONTAINER not in text(container.get("image"))
    ]
    parts = [container.get(part) for container in others for part in ("command", "args")]
    words = " ".join(str(word) for part in parts if isinstance(part, list) for word in part).split()
    said = msgspec.json.encode(others).lower()
    runs_tasks = any(word.rpartition("/")[2] in _RUN_TASKS for word in words)
    return not runs_tasks and (b"flink" in said or b"jobmanager" in said)


_RUN_TASKS: Final = frozenset({"taskmanager", "taskmanager.sh", "kubernetes-taskmanager.sh"})
_GIVEN_UP: Final = frozenset({"ProgressDeadlineExceeded", "BackoffLimitExceeded"})


class Makers:
    """Reports each maker of JobManagers whenever it or one of its pods changes. Several threads call it."""

    def __init__(
        self,
        clusters_of: Callable[[str], Iterable[str]],
        clock: Callable[[], Moment],
        report: PlanObserver,
        every: Iterable[str] = (),
        namespaces: Namespaces | None = None,
    ) -> None:
        """`clusters_of`: the ids of the clusters that a maker in a namespace may be of, as observations have them. `every`: of all of them,
        to be told when all was read. `namespaces`: None: they are not asked for."""
        self._clusters_of = clusters_of
        self._every = [*every]
        self._namespaces = namespaces
        self._unread = {POD, Maker.FLINK_DEPLOYMENT.value, *map(str, GROUPS)}
        """Kinds of which not everything was read."""
        self._deployments: frozenset[str] = frozenset()
        """The names of FlinkDeployments."""
        self._there: Mapping[str, frozenset[Candidate]] | None = None
        """The candidates that were reported last. None: not all of them were read."""
        self._clock = clock
        self._report = report
        self._lock = threading.Lock()
        """Held while one of the following is read or changed."""
        self._makers: dict[_Key, MakerStatus] = {}
        self._rolling: set[_Key] = set()
        self._pods: dict[str, JobManagerPod] = {}
        self._unmade: dict[str, JobManagerPod] = {}
        """Pods that something else makes, or nobody."""
        self._hosts: dict[_Key, dict[str, None]] = {}
        self._reported: dict[_Key, Seen] = {}

    def pod(self, name: str, pod: JobManagerPod, *, deleted: bool) -> None:
        """A JobManager's pod changed."""
        if pod.maker is None:
            with self._lock:
                (self._unmade.pop(name, None) if deleted else self._unmade.update({name: pod}))
                self._report_all()
            return
        key = pod.maker[0], f"{name.rpartition('/')[0]}/{pod.maker[1]}".lstrip("/")
        with self._lock:
            if deleted:
                self._pods.pop(name, None)
            else:
                self._pods[name] = pod
                hosts = self._hosts.setdefault(key, {})
                hosts |= dict.fromkeys(filter(None, (pod.status.address, pod.status.name)))
                self._hosts[key] = dict.fromkeys([*hosts][-MOST_HOSTS:])
            self._changed(key)

    def listed(self, kind: Maker, makers: Mapping[str, MakerStatus], *, complete: bool) -> None:
        with self._lock:
            gone = [key for key in self._makers if key[0] is kind and key[1] not in makers] if complete else []
        for key in gone:
            self.maker(*key, None)
        for name, maker in makers.items():
            self.maker(kind, name, maker)
        (self.read if complete else self.unread)(kind)

    def read(self, kind: str) -> None:
        """All of a kind was read."""
        with self._lock:
            self._unread.discard(str(kind))
            self._report_all()

    def deployments(self, names: Iterable[str]) -> None:
        """The names of all FlinkDeployments that there are."""
        with self._lock:
            self._deployments = frozenset(names)
            self._report_all()

    def unread(self, kind: str) -> None:
        """Note that a kind can no longer be read completely."""
        with self._lock:
            self._unread.add(str(kind))
            if self._there is None:
                return
            self._there = None
            at = self._clock()
            for cluster_id in self._every:
                self._report(DeploymentUnreadable(at, cluster_id, Maker.NOTHING))

    def maker(self, kind: Maker, name: str, maker: MakerStatus | None) -> None:
        """Note a maker. None: it was deleted."""
        key = kind, name
        ended_with = ""
        if self._namespaces and key in self._reported and (maker is None or maker.deployment.deleting):
            ended_with = self._namespaces.ended_with(name)
        with self._lock:
            before = self._makers.get(key)
            if maker is None:
                self._makers.pop(key, None)
                self._rolling.discard(key)
            else:
                self._makers[key] = maker
                same = before and before.deployment.uid == maker.deployment.uid
                if maker.mixed or (same and before and before.revision != maker.revision):
                    self._rolling.add(key)
            self._changed(key, ended_with)
            if _candidacy(before) != _candidacy(maker):
                self._report_all()

    def lost(self, kind: Maker) -> None:
        """Note that makers of this kind can no longer be read."""
        self.unread(kind)
        with self._lock:
            reported = [key for key in self._reported if key[0] is kind]
            for key in reported:
                del self._reported[key]
            namespaces = {name.rpartition("/")[0] for _, name in reported}
        at = self._clock()
        for cluster_id in sorted({cluster for namespace in namespaces for cluster in self._clusters_of(namespace)}):
            self._report(DeploymentUnreadable(at, cluster_id, kind))

    def _report_all(self) -> None:
        """Report all that may make JobManagers, if all was read, and it is not what was reported last."""
        if self._unread:
            return
        there: dict[str, set[Candidate]] = {}
        candidates = [
            *(
                (name, Candidate(kind, "", maker.native_app))
                for (kind, name), maker in self._makers.items()
                if maker.may_make_them
            ),
            *((name, Candidate(POD, "", pod.app if pod.is_named else "")) for name, pod in self._unmade.items()),
            *((name, Candidate(Maker.FLINK_DEPLOYMENT, "", name.rpartition("/")[2])) for name in self._deployments),
        ]
        for name, candidate in candidates:
            namespace, _, plain = name.rpartition("/")
            there.setdefault(namespace, set()).add(replace(candidate, name=plain))
        known = {namespace: frozenset(names) for namespace, names in there.items()}
        if known == self._there:
            return
        self._there = known
        at = self._clock()
        for cluster_id in self._every:
            self._report(MakersListed(at, cluster_id, known))

    def _changed(self, key: _Key, ended_with: str = "") -> None:
        seen = self._seen(key)
        if seen and ended_with:
            seen = replace(seen, namespace=ended_with)
        if seen is None or seen == self._reported.get(key):
            return
        if seen.deployment is None:
            self._reported.pop(key, None)
            self._hosts.pop(key, None)
        else:
            self._reported[key] = seen
        at = self._clock()
        for cluster_id in self._clusters_of(key[1].rpartition("/")[0]):
            self._report(MakerObserved(at, cluster_id, seen))

    def _seen(self, key: _Key) -> Seen | None:
        """The report of a maker. None: it makes no JobManagers, or a FlinkDeployment describes it better."""
        maker, hosts = self._makers.get(key), frozenset(self._hosts.get(key, {}))
        kind, name = key[0], key[1].rpartition("/")[2]
        if maker is None:
            return Seen(kind, name, None, hosts) if key in self._reported else None
        if maker.owned or not (maker.makes_job_managers or hosts):
            return None
        namespace = key[1].rpartition("/")[0]
        pods = [
            pod
            for place, pod in self._pods.items()
            if pod.maker == (kind, name) and place.rpartition("/")[0] == namespace
        ]
        if maker.settled and all(pod.status.delete_at is None for pod in pods):
            self._rolling.discard(key)
        rolling = key in self._rolling
        others = [other for other, status in self._makers.items() if other != key and status.makes_job_managers]
        deployment = replace(
            maker.deployment,
            reconciliation=Reconciliation.UPGRADING if rolling else Reconciliation.DEPLOYED,
            stuck=maker.deployment.stuck or next((pod.stuck for pod in pods if pod.stuck), ""),
        )
        alone = maker.makes_job_managers and not any(other[1].rpartition("/")[0] == namespace for other in others)
        return Seen(kind, name, deployment, hosts, maker.app, alone)


def _candidacy(maker: MakerStatus | None) -> str | None:
    """Whose JobManagers it may make; None: nobody's."""
    return maker.native_app if maker and maker.may_make_them else None


class MakerReports:
    """Reports the makers of one kind, for an `ObjectWatch`."""

    def __init__(self, kind: Maker, makers: Makers) -> None:
        self._kind = kind
        self._makers = makers

    def listed(self, items: Mapping[str, MakerStatus], *, complete: bool) -> None:
        self._makers.listed(self._kind, items, complete=complete)

    def changed(self, name: str, value: MakerStatus, *, deleted: bool = False) -> None:
        self._makers.maker(self._kind, name, None if deleted else value)

    def lost(self) -> None:
        self._makers.lost(self._kind)
