"""Segments in an object store: S3 and compatible stores, Google Cloud Storage, Azure. The only importer of obstore.

obstore finds credentials, endpoint and region in the environment or the cloud's metadata. Unless AWS_TIMEOUT and the like are set, a
request may take 30 s and connecting 5 s. Its error texts hold the store's answer, sometimes with access keys: they are never shown.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from obstore.exceptions import AlreadyExistsError
from obstore.store import from_url

_ENDPOINTS: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_RETRIES: Final = 2
"""For short interruptions. The spool retries after longer ones."""
_RETRY_FOR: Final = timedelta(seconds=10)

_NO_CREDENTIALS: Final = "there are no credentials, neither in the environment nor from this machine"
_REFUSED: Final = "the credentials are refused, or do not allow to list, get and put objects"
_REASONS: Final = {
    "/latest/api/token": _NO_CREDENTIALS,
    "/computeMetadata/": _NO_CREDENTIALS,
    "/metadata/identity/": _NO_CREDENTIALS,
    "status code: 401": _REFUSED,
    "status code: 403": _REFUSED,
    "status code: 404": "there is no such bucket or container",
    "status code: 501": "it cannot put an object only where there is none (If-None-Match), and what others wrote must stay",
    "conditional put is disabled": "AWS_CONDITIONAL_PUT forbids to put an object only where there is none",
    "configured region": "it is in another region: set AWS_REGION",
    "TimedOut": "no answer in time",
    "ConnectionRefused": "the connection is refused",
    "dns error": "the name of its host cannot be resolved",
    "SendRequest": "the connection broke",
    "InvalidCertificate": "its certificate is not trusted: name the file of its CA in SSL_CERT_FILE",
    "BadScheme": "its endpoint is http://, which needs AWS_ALLOW_HTTP=true",
    "InvalidUri": "its endpoint is no URL",
    "Account must be specified": "set AZURE_STORAGE_ACCOUNT_NAME",
    "did not match any known pattern": "it must be like abfss://container@account.dfs.core.windows.net/prefix",
    "Config error": "a variable of the environment (AWS_…, AZURE_…, GOOGLE_…) is not understood",
}
"""By a fragment of the error's text; the first match counts."""
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")


class ObjectStore:
    """A segment is one object. Objects of others are never overwritten."""

    def __init__(self, url: str, folder: str) -> None:
        for variable in _ENDPOINTS:
            if not os.environ.get(variable, "https://").startswith(("https://", "http://")):
                raise OSError(f"{variable} must begin with https:// or http://")
        with _converted_errors():
            self._store = from_url(url, retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_FOR})
        self._folder = folder
        self._url = url.rstrip("/")

    @property
    def name(self) -> str:
        """The name for logs and errors."""
        return f"{self._url}/{self._folder}"

    def recover(self, first: str) -> list[str]:
        """The names of the stored segments from `first` on. Raises OSError."""
        with _converted_errors():
            found = self._store.list(self._folder, offset=f"{self._folder}/{first}").collect()
        return [entry["path"].removeprefix(f"{self._folder}/") for entry in found]

    def read(self, name: str) -> bytes:
        """A stored segment. Raises OSError."""
        with _converted_errors():
            return bytes(self._store.get(f"{self._folder}/{name}").bytes())

    def put(self, name: str, content: bytes) -> None:
        """Store a segment, unless it exists: an earlier put may have lost only its answer. Raises OSError."""
        path = f"{self._folder}/{name}"
        with _converted_errors():
            try:
                self._store.put(path, content, mode="create")
            except AlreadyExistsError:
                stored = self._store.get(path)
                same = stored.meta["size"] == len(content) and bytes(stored.bytes()) == content
            else:
                return
        if not same:
            raise OSError(
                f"{name} exists, is not ours, and is not overwritten: give every sidecar an observer or a spool.url of its own, "
                "or remove that object"
            )


@contextmanager
def _converted_errors() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the Rust library is no Exception
        raise OSError(_reason(str(error))) from error


def _reason(text: str) -> str:
    reason = next((reason for sign, reason in _REASONS.items() if sign in text), None)
    if reason is None:
        status = _STATUS.search(text)
        reason = f"the answer was {status[1]}" if status else "it cannot be reached, or is no object store"
    code = _CODE.search(text)
    return f"{reason} ({code[1]})" if code else reason
