"""Events in Kubernetes: one object for each subject and reason, which is counted on. Nothing of Flink's is written."""

from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

from sidecar.core.cluster.failover_events import EventReason, KubernetesEvent
from sidecar.drivers.kubernetes.access import Access, ApiError
from sidecar.drivers.kubernetes.api import Api, Selector, Verb
from sidecar.drivers.kubernetes.objects import EPISODES_ANNOTATION, EventObject, read_event
from sidecar.ports import KubernetesError, KubernetesRefusedError

COMPONENT: Final = "flink-ha-sidecar"
MOST_EPISODES: Final = 10
ROLE: Final = '{apiGroups: [""], resources: [events], verbs: [create, get, patch]}'
_TRIES: Final = 5
_NAME_LENGTH: Final = 200


def event_name(event: KubernetesEvent) -> str:
    """The name of the Event, equal for every observer, and for every Event about this subject with this reason."""
    subject = event.subject
    digest = sha256("\x1f".join((subject.kind, subject.uid, event.reason)).encode()).hexdigest()
    return f"{subject.name[:_NAME_LENGTH].rstrip('.-')}.{digest[:16]}"


class KubernetesEvents:
    """A `sidecar.ports.EventStore`: `v1` Events in one namespace.

    `kubectl describe` shows these as those of `events.k8s.io/v1`; only these have a count that a new message may go with.
    """

    def __init__(self, access: Access, namespace: str) -> None:
        self._namespace = namespace
        self._api = Api(access, namespace)

    def write(self, event: KubernetesEvent) -> None:
        try:
            for _ in range(_TRIES):
                if self._create(event) or self._count(event):
                    return
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:
                raise KubernetesRefusedError(f"{error}; the Role needs {ROLE}") from error
            raise KubernetesError(str(error)) from error
        finally:
            self._api.reopen()  # failovers are seldom: no connection is kept
        raise KubernetesError(
            f"Event {event_name(event)} in namespace {self._namespace} is written by others all the time"
        )

    def _create(self, event: KubernetesEvent) -> bool:
        """True if the Event was written; False: there is one."""
        subject, time = event.subject, _seconds(event)
        body = {
            "metadata": {
                "name": event_name(event),
                "labels": {"app.kubernetes.io/name": COMPONENT},
                "annotations": {EPISODES_ANNOTATION: event.episode_id},
            },
            "involvedObject": {
                "apiVersion": "v1",
                "kind": subject.kind,
                "namespace": self._namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
            "reason": event.reason,
            "type": "Warning" if event.reason is EventReason.LEADER_LOST else "Normal",
            "message": event.message,
            "source": {"component": COMPONENT},
            "count": 1,
            "firstTimestamp": time,
            "lastTimestamp": time,
        }
        return self._call("create", event, body, unless=HTTPStatus.CONFLICT) is not None

    def _count(self, event: KubernetesEvent) -> bool:
        """True if the Event that exists counts this one; False: it has expired or changed meanwhile."""
        existing = self._call("get", event, None, unless=HTTPStatus.NOT_FOUND)
        if existing is None or event.episode_id in existing.episodes:
            return existing is not None
        body: dict[str, Any] = {
            "metadata": {
                "resourceVersion": existing.resource_version,
                "annotations": {EPISODES_ANNOTATION: ",".join([*existing.episodes, event.episode_id][-MOST_EPISODES:])},
            },
            "count": existing.count + 1,
            "lastTimestamp": _seconds(event),
            "message": event.message,
        }
        return self._call("patch", event, body, unless=HTTPStatus.CONFLICT) is not None

    def _call(self, verb: Verb, event: KubernetesEvent, body: object, *, unless: int) -> EventObject | None:
        """None: the API server answered `unless`. Raises ApiError."""
        try:
            return self._api.exchange(verb, Selector(event_name(event), kind="Event"), body, read_event)
        except ApiError as error:
            if error.status == unless:
                return None
            raise


def _seconds(event: KubernetesEvent) -> str:
    """The time as Events have it."""
    return f"{event.at[:19]}Z"
