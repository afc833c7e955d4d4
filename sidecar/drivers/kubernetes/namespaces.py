"""Whether the namespace of what was deleted is being deleted itself: a Role in it may allow to get it."""

import logging
import time
from http import HTTPStatus
from threading import Lock
from typing import Final

from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.api_error import ApiError
from sidecar.drivers.kubernetes.objects import read_terminating

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
