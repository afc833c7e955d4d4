"""The ledger in Kubernetes: a ConfigMap of its own beside Flink's.

It has neither a name nor the labels by which Flink finds, and finally deletes, its own ConfigMaps.
"""

from collections.abc import Callable, Container
from concurrent.futures import Future
from http import HTTPStatus
from threading import Thread
from typing import Any, Final

from sidecar.drivers.kubernetes.access import Access, ApiError
from sidecar.drivers.kubernetes.api import Api, Selector, Verb
from sidecar.drivers.kubernetes.objects import ConfigMap, read_config_map
from sidecar.ports import LONGEST_DOCUMENT, LedgerError, LedgerRefusedError, StoredDocument

LABELS: Final = {"app.kubernetes.io/name": "flink-ha-sidecar", "app.kubernetes.io/component": "ledger"}
ANNOTATIONS: Final = {"argocd.argoproj.io/ignore-resource-updates": "true"}
"""Argo CD applies what it is configured to ignore also to an object that it does not manage: docs/how-to/kubernetes.md."""

_REFUSED = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})


def ledger_name(cluster_id: str) -> str:
    """The ledger's ConfigMap. The name stays below Kubernetes' limit (253): a cluster id has at most 63 characters."""
    return f"{cluster_id}-flink-ha-sidecar"


class KubernetesLedger:
    """A `sidecar.ports.LedgerStore`: a key of a ConfigMap, created when missing. Everything else in it is kept."""

    def __init__(
        self, access: Access, namespace: str, cluster_id: str, *, name: str = "ledger", seconds: float = 5.0
    ) -> None:
        """`name`: of the document. `access` must not be shared: it is cut when a call takes longer than `seconds`."""
        self._access = access
        self._namespace = namespace
        self._seconds = seconds
        self._key = name
        self._name = ledger_name(cluster_id)
        self._api = Api(access, namespace)

    def read(self) -> StoredDocument:
        config_map = self._call("get", unless={HTTPStatus.NOT_FOUND})
        if config_map is None:
            return StoredDocument()
        content = config_map.data.get(self._key, "").encode(errors="replace")
        if len(content) > LONGEST_DOCUMENT:
            raise LedgerError(f"{self._doing('get')}: {len(content)} bytes are too many for a ledger: delete it")
        return StoredDocument(content, config_map.resource_version)

    def write(self, content: bytes, over: StoredDocument) -> StoredDocument | None:
        if len(content) > LONGEST_DOCUMENT:
            raise LedgerError(f"{self._doing('patch')}: {len(content)} bytes, of at most {LONGEST_DOCUMENT}")
        body: dict[str, Any] = {"data": {self._key: content.decode()}}
        if over.version is None:
            body["metadata"] = {"name": self._name, "labels": LABELS, "annotations": ANNOTATIONS}
            written = self._call("create", body, unless={HTTPStatus.CONFLICT})
        else:
            body["metadata"] = {"resourceVersion": str(over.version)}
            written = self._call("patch", body, unless={HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})
        return None if written is None else StoredDocument(content, written.resource_version)

    def rest(self) -> None:
        self._api.reopen()

    stop = rest

    def _call(self, verb: Verb, body: object = None, *, unless: Container[int | None]) -> ConfigMap | None:
        """None: the API server answered with a status in `unless`."""
        api = self._api
        try:
            return self._call_with_deadline(lambda: api.exchange(verb, Selector(self._name), body, read_config_map))
        except ApiError as error:
            if error.status in unless:
                return None
            if error.status is None:
                api.reopen()
            refused = error.status in _REFUSED
            raise (LedgerRefusedError if refused else LedgerError)(f"the {self._key}: {error}") from error
        except TimeoutError as error:
            self._access.cut()
            self._api = Api(self._access, self._namespace)
            raise LedgerError(f"{self._doing(verb)}: no answer in {self._seconds:g} s") from error

    def _call_with_deadline(self, call: Callable[[], ConfigMap]) -> ConfigMap:
        """The result of `call`. Abandons it after `seconds` (a DNS lookup may take longer) and raises TimeoutError."""
        result: Future[ConfigMap] = Future()

        def run() -> None:
            try:
                result.set_result(call())
            except BaseException as error:  # noqa: BLE001  raised in the calling thread
                result.set_exception(error)

        Thread(target=run, name="kubernetes-ledger", daemon=True).start()
        return result.result(self._seconds)

    def _doing(self, verb: str) -> str:
        return f"the {self._key}: cannot {verb} ConfigMap {self._name} in namespace {self._namespace}"
