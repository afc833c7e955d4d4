"""Objects below a URL of an object store: S3 and compatible stores, Google Cloud Storage, Azure. The only importer of obstore.

obstore finds credentials, endpoint and region in the environment or the cloud's metadata. Unless AWS_TIMEOUT and the like are set, a
request may take 30 s and connecting 5 s. Its error texts hold the store's answer, sometimes with access keys: they are never shown.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, InvalidPathError, PreconditionError
from obstore.store import from_url

ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Variables that name the endpoint."""
_CHUNK: Final = 8 << 20
_PART: Final = 1 << 20

_NO_CREDENTIALS: Final = "there are no credentials, neither in the environment nor from this machine"
_REFUSED: Final = "the credentials are refused, or do not allow to list, get and put objects"
_OTHER_REGION: Final = "it is in another region: set AWS_REGION"
_REASONS: Final = {
    "External AWS credential provider": _NO_CREDENTIALS,
    "/latest/api/token": _NO_CREDENTIALS,
    "/computeMetadata/": _NO_CREDENTIALS,
    "/metadata/identity/": _NO_CREDENTIALS,
    "<Code>RequestTimeTooSkewed<": "the clock of this machine differs too much from that of the store",
    "<Code>AuthorizationHeaderMalformed<": _OTHER_REGION,
    "status code: 401": _REFUSED,
    "status code: 403": _REFUSED,
    "<Code>NoSuchKey<": "there is no such object",
    "status code: 404": "there is no such bucket or container",
    "status code: 501": "it cannot put an object only where there is none (If-None-Match), and what others wrote must stay",
    "conditional put is disabled": "AWS_CONDITIONAL_PUT forbids to put an object only where there is none",
    "configured region": _OTHER_REGION,
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
"""The reasons by a fragment of the error's text; the first match counts."""
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")

Content: TypeAlias = bytes | memoryview


class StoredObject(Struct, frozen=True):
    """One object, as it was listed."""

    path: str
    """Relative to the store's URL."""
    size: int
    """Bytes."""
    etag: str
    """Differs between two contents of one path."""
    modified: datetime


class StoreError(OSError):
    """The store, or the way to it, has failed or refused: nothing about one object."""


class ObjectStore:
    """The objects below a URL. Every problem is an OSError, mostly a StoreError, whose text is one line without any secret."""

    def __init__(self, url: str, *, retries: int, retry_for: timedelta, **options: Any) -> None:
        """A broken connection or a busy store is tried `retries` times again, with growing pauses, no longer than `retry_for`.

        `options`: of obstore, in place of what the environment says. Connects to nothing. Raises OSError.
        """
        for variable in ENDPOINTS:
            if not os.environ.get(variable, "https://").startswith(("https://", "http://")):
                raise OSError(f"{variable} must begin with https:// or http://")
        # Not every store that speaks S3 deletes several objects in one request.
        if url.startswith(("s3://", "s3a://")):
            options["disable_bulk_delete"] = True
        with _converted_errors():
            self._store = from_url(url, retry_config={"max_retries": retries, "retry_timeout": retry_for}, **options)
        self.url: Final = url.rstrip("/")

    def list(self, folder: str = "", *, after: str = "") -> Iterator[StoredObject]:
        """The objects below a folder in the order of their paths, those after the path `after`. Raises OSError."""
        with _converted_errors():
            for page in self._store.list(folder or None, offset=after or None):
                for entry in page:
                    yield StoredObject(entry["path"], entry["size"], entry["e_tag"] or "", entry["last_modified"])

    def children(self, folder: str = "") -> dict[str, bool]:
        """The names directly below a folder, in order, and whether each is a folder. Raises OSError."""
        with _converted_errors():
            listing = self._store.list_with_delimiter(folder or None)
        folders = {path.rpartition("/")[2]: True for path in listing["common_prefixes"]}
        files = {entry["path"].rpartition("/")[2]: False for entry in listing["objects"]}
        return dict(sorted((folders | files).items()))

    def exists(self, path: str) -> bool:
        """True if there is such an object. Raises OSError."""
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        """The size of an object in bytes. Raises OSError: FileNotFoundError if there is none."""
        with _converted_errors():
            return int(self._store.head(path)["size"])

    def content(self, path: str) -> Iterator[bytes]:
        """The content of an object, in parts of some MiB. Raises OSError: FileNotFoundError if there is none."""
        with _converted_errors():
            for part in self._store.get(path).stream(min_chunk_size=_PART):
                yield bytes(part)

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """A whole object. Raises OSError: FileNotFoundError if there is none, EFBIG if it is larger than `most_bytes`."""
        with _converted_errors():
            answer = self._store.get(path)
            size = answer.meta["size"]
            content = b"" if most_bytes is not None and size > most_bytes else bytes(answer.bytes())
        if most_bytes is not None and size > most_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
        return content

    def chunks(self, stored: StoredObject) -> Iterator[bytes]:
        """The content that was listed, 8 MiB a request. Raises OSError; FileNotFoundError if it was deleted or replaced."""
        for start in range(0, stored.size, _CHUNK):
            with _converted_errors():
                end = min(start + _CHUNK, stored.size)
                answer = self._store.get(stored.path, options={"range": (start, end)})
                if answer.meta["size"] != stored.size or (answer.meta["e_tag"] or "") != stored.etag:
                    break
                chunk = bytes(answer.bytes())
            yield chunk
        else:
            return
        raise FileNotFoundError(f"{stored.path} was replaced while it was read")

    def create(self, path: str, content: Content) -> str:
        """Store an object where there is none, or the same: an earlier put may have lost only its answer. Returns its ETag.

        Atomic. Raises FileExistsError if the object exists with another content, else OSError.
        """
        with _converted_errors():
            try:
                return self._store.put(path, content, mode="create")["e_tag"] or ""
            except (AlreadyExistsError, PreconditionError):
                etag = self._etag_if_holds(path, content)
        if etag is None:
            raise FileExistsError(f"{path} exists and is not ours")
        return etag

    def put(self, path: str, content: Content) -> str:
        """Store an object, also over another one. Returns its ETag. Atomic. Raises OSError."""
        with _converted_errors():
            return self._store.put(path, content, use_multipart=False)["e_tag"] or ""

    def delete(self, path: str) -> None:
        """Delete an object, if it exists. Raises OSError."""
        try:
            with _converted_errors():
                self._store.delete(path)
        except FileNotFoundError:
            pass  # some stores report it

    def _etag_if_holds(self, path: str, content: Content) -> str | None:
        meta = self._store.head(path)
        if meta["size"] != len(content):
            return None
        for start in range(0, meta["size"], _CHUNK):
            expected = bytes(content[start : start + _CHUNK])
            if bytes(self._store.get_range(path, start=start, length=len(expected))) != expected:
                return None
        return meta["e_tag"] or ""


@contextmanager
def _converted_errors() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except (FileExistsError, FileNotFoundError) as error:
        raise type(error)(_reason(str(error))) from error
    except InvalidPathError as error:
        raise OSError("it contains an object with a name that no store of files can have: remove it") from error
    except BaseException as error:  # a panic of the Rust library is no Exception
        raise StoreError(_reason(str(error))) from error


def _reason(text: str) -> str:
    reason = next((reason for sign, reason in _REASONS.items() if sign in text), None)
    if reason is None:
        status = _STATUS.search(text)
        reason = f"the answer was {status[1]}" if status else "it cannot be reached, or is no object store"
    code = _CODE.search(text)
    return f"{reason} ({code[1]})" if code else reason
