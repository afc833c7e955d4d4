"""Reads one kubeconfig: the child process of `access`.

One JSON line comes in on stdin, `{"file": …, "context": …}`; one goes out on stdout: `{"credentials": …}`, those of `access`, or
`{"problem": …}`, one line, free of secrets.

Only this module imports `kubernetes`: it costs 20 MiB, and a kubeconfig may name a program to run, which may hang.
"""

import logging
import tempfile
from pathlib import Path
from typing import Any, Final

from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_kube_config
from requests.utils import should_bypass_proxies

from sidecar.runtime.answering import answer_once
from sidecar.settings.cluster.kubernetes import proxy_problem

_LONGEST_REASON: Final = 500


def read(file: str, context: str | None) -> dict[str, Any]:
    """The credentials of `context` (None: the current one) in `file`, with the content of the files that it names."""
    configuration: Any = Configuration()
    failures: list[str] = []
    logging.getLogger().addHandler(_Failures(failures))
    try:
        if not Path(file).is_file():
            return {"problem": f"the kubeconfig {file} does not exist"}
        with tempfile.TemporaryDirectory() as folder:
            load_kube_config(file, context, configuration, persist_config=False, temp_file_path=folder)  # type: ignore[no-untyped-call]  # is untyped
            credentials = _credentials(configuration)
        if failures and not (credentials["token"] or credentials["certificate"]):
            return {"problem": f"the kubeconfig {file} cannot be used: {_line(failures[-1])}"}
        if credentials["proxy"] and (problem := proxy_problem(credentials["proxy"])):  # it may be the environment's
            return {
                "problem": f"the kubeconfig {file} cannot be used: its proxy, or that of the environment: {problem}"
            }
    except (ConfigException, OSError) as error:
        return {"problem": f"the kubeconfig {file} cannot be used: {_reason(error)}"}
    except Exception:  # noqa: BLE001  any error of the library; its text may quote a secret
        return {"problem": f"the kubeconfig {file} cannot be used: it is not a valid kubeconfig"}
    return {"credentials": credentials}


def _credentials(configuration: Any) -> dict[str, Any]:
    direct = should_bypass_proxies(configuration.host, configuration.no_proxy or "")
    return {
        "host": configuration.host,
        "token": configuration.api_key.get("BearerToken", "").removeprefix("Bearer").strip(),
        "authority": _text(configuration.ssl_ca_cert),
        "certificate": _text(configuration.cert_file),
        "key": _text(configuration.key_file),
        "verified": configuration.verify_ssl,
        "server_name": configuration.tls_server_name,
        "proxy": None if direct else configuration.proxy,
    }


def _text(file: str | None) -> str | None:
    return Path(file).read_text(encoding="ascii", errors="replace") if file else None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return _line(str(error))


def _line(text: str) -> str:
    """The text up to its first brace: after that the library quotes parts of the file, which may be secrets."""
    return " ".join(text.partition("{")[0].split())[:_LONGEST_REASON]


class _Failures(logging.Handler):
    """Collects errors that the library only logs: those of the program that a kubeconfig names (`exec`)."""

    def __init__(self, failures: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        self._failures.append(record.getMessage())


if __name__ == "__main__":
    logging.lastResort = None  # prints nothing
    answer_once(read)
