"""The ledger in Kubernetes: a ConfigMap of our own beside Flink's. This alone writes to Kubernetes.

Nobody takes it for one of Flink's: it has none of the labels by which Flink finds, and in the end deletes, its own, nor one of their names.
"""

from collections.abc import Callable, Container
from concurrent.futures import Future
from http import HTTPStatus
from threading import Thread
from typing import Any, Final

from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.api import Api, Verb
from sidecar.drivers.kubernetes.errors import ApiError
from sidecar.drivers.kubernetes.events import ConfigMap
from sidecar.ports import LONGEST_DOCUMENT, Document, LedgerError, LedgerRefusedError

LABELS: Final = {"app.kubernetes.io/name": "flink-ha-sidecar", "app.kubernetes.io/component": "ledger"}

_REFUSED = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})


def ledger_name(cluster_id: str) -> str:
    """The ConfigMap of a cluster's ledger: of any cluster id, 63 characters at most, no longer than Kubernetes takes (253)."""
    return f"{cluster_id}-flink-ha-sidecar"


class KubernetesLedger:
    """A `sidecar.ports.LedgerStore`: a key of a ConfigMap, which is made where it is missing.

    Whatever else stands in it is left as it is: other keys, labels, annotations.
    """

    def __init__(
        self, access: Access, namespace: str, cluster_id: str, *, name: str = "ledger", seconds: float = 5.0
    ) -> None:
        """`name`: of the document. `access` is used by nobody else: it is cut when a call takes longer than `seconds`."""
        self._access = access
        self._namespace = namespace
        self._seconds = seconds
        self._key = name
        self._name = ledger_name(cluster_id)
        self._api = Api(access, namespace)

    def read(self) -> Document:
        found = self._ask("get", unless={HTTPStatus.NOT_FOUND})
        if found is None:
            return Document()
        content = found.data.get(self._key, "").encode(errors="replace")
        if len(content) > LONGEST_DOCUMENT:
            raise LedgerError(f"{self._doing('get')}: {len(content)} bytes are too many to be one: delete it")
        return Document(content, found.resource_version)

    def write(self, content: bytes, over: Document) -> Document | None:
        if len(content) > LONGEST_DOCUMENT:
            raise LedgerError(f"{self._doing('patch')}: {len(content)} bytes, of which it may have {LONGEST_DOCUMENT}")
        body: dict[str, Any] = {"data": {self._key: content.decode()}}
        if over.version is None:
            body["metadata"] = {"name": self._name, "labels": LABELS}
            written = self._ask("create", body, unless={HTTPStatus.CONFLICT})
        else:
            body["metadata"] = {"resourceVersion": str(over.version)}
            written = self._ask("patch", body, unless={HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})
        return None if written is None else Document(content, written.resource_version)

    def rest(self) -> None:
        self._api.reopen()

    def stop(self) -> None:
        self.rest()

    def _ask(self, verb: Verb, body: object = None, *, unless: Container[int | None]) -> ConfigMap | None:
        """None: the API server answered one of `unless`."""
        api = self._api
        try:
            return self._in_time(lambda: api.call(verb, self._name, body))
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

    def _in_time(self, ask: Callable[[], ConfigMap]) -> ConfigMap:
        """Raises TimeoutError, and leaves what takes longer to itself: looking up a name, say, has a time limit that is the system's."""
        asked: Future[ConfigMap] = Future()

        def run() -> None:
            try:
                asked.set_result(ask())
            except BaseException as error:  # noqa: BLE001  it is raised where it was asked for
                asked.set_exception(error)

        Thread(target=run, name="kubernetes-ledger", daemon=True).start()
        return asked.result(self._seconds)

    def _doing(self, verb: str) -> str:
        return f"the {self._key}: cannot {verb} ConfigMap {self._name} in namespace {self._namespace}"
