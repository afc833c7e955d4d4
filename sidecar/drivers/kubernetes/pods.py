"""The pods of a namespace, by IP address."""

from http import HTTPStatus
from typing import Final

from sidecar.core.pods import Pod
from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.api_error import ApiError
from sidecar.ports import KubernetesError, KubernetesRefusedError

ROLE: Final = '{apiGroups: [""], resources: [pods], verbs: [list]}'


class KubernetesPods:
    """A `sidecar.ports.PodDirectory`. It asks for metadata alone, not for what pods are made of."""

    def __init__(self, access: Access, namespace: str) -> None:
        self._api = Api(access, namespace)

    def find(self, address: str, wall: int) -> Pod | None:
        # A pod that has ended keeps its address; pods with `hostNetwork` share that of their node.
        selector = Selector(kind="Pod", fields=f"status.podIP={address},status.phase=Running")
        try:
            pods = [*self._api.read_pages(selector, names_only=True).config_maps.values()]
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:
                raise KubernetesRefusedError(f"{error}; the Role needs {ROLE}") from error
            raise KubernetesError(str(error)) from error
        finally:
            self._api.reopen()  # leaders change seldom: no connection is kept
        return Pod(pods[0].name, pods[0].uid, wall) if len(pods) == 1 else None
