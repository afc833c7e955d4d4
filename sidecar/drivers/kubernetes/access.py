"""Where the API server is, and who we are there."""

import os
from pathlib import Path
from typing import Any, Final

from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_kube_config
from msgspec import Struct

from sidecar.drivers.kubernetes.errors import ApiError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where every pod finds `token` and `ca.crt`."""


class Access(Struct, frozen=True):
    """Who we are: the service account of the pod that we run in, or what a kubeconfig says."""

    kubeconfig: Path | None = None
    """None: in the pod."""
    context: str | None = None
    """Of the kubeconfig; None: its current one."""

    def configuration(self) -> Any:
        """What the files say now, as a `kubernetes.client.Configuration`. Raises ApiError."""
        configuration: Any = Configuration()
        if self.kubeconfig:
            _read_kubeconfig(configuration, self.kubeconfig, self.context)
        else:
            configuration.host = _in_cluster_host()
            configuration.ssl_ca_cert = str(SERVICE_ACCOUNT / "ca.crt")
            configuration.refresh_api_key_hook = _read_token
            _read_token(configuration)
        configuration.retries = False  # how often to try again, and when, is the driver's to decide
        return configuration


def _in_cluster_host() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ApiError(
            "this is no pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set): name a kubeconfig"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _read_token(configuration: Any) -> None:
    """Before each request: the kubelet writes a new token long before the old one expires."""
    file = SERVICE_ACCOUNT / "token"
    try:
        token = file.read_text().strip()
    except (OSError, ValueError) as error:
        raise ApiError(f"cannot read the service account's token {file}: {_words(error)}") from error
    if not token or not token.isascii() or not token.isprintable():
        raise ApiError(f"{file} holds no token")
    configuration.api_key["BearerToken"] = f"Bearer {token}"


def _read_kubeconfig(configuration: Any, file: Path, context: str | None) -> None:
    try:
        if not file.is_file():
            raise ApiError(f"there is no kubeconfig {file}")
        load_kube_config(str(file), context, configuration, persist_config=False)  # type: ignore[no-untyped-call]  # is untyped
    except ApiError:
        raise
    except (ConfigException, OSError) as error:
        raise ApiError(f"the kubeconfig {file} cannot be used: {_words(error)}") from error
    except Exception as error:  # whatever the file made the library stumble over; what that quotes may be a secret
        raise ApiError(f"the kubeconfig {file} cannot be used: it is not built like one") from error
    if token := configuration.api_key.get("BearerToken"):
        configuration.api_key["BearerToken"] = token.strip()


def _words(error: Exception) -> str:
    """In one line. From the first brace on the library quotes parts of the file, which may be secrets."""
    return " ".join(str(getattr(error, "strerror", None) or error).partition("{")[0].split())
