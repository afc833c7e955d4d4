"""Segments in an object store."""

from datetime import timedelta
from typing import Final

from sidecar.net import object_store

_RETRIES: Final = 2
"""The retries after short interruptions. The spool retries after longer ones."""
_RETRY_FOR: Final = timedelta(seconds=10)


class ObjectStore:
    """A segment is one object. Objects of others are never overwritten."""

    def __init__(self, url: str, folder: str) -> None:
        self._store = object_store.ObjectStore(url, retries=_RETRIES, retry_for=_RETRY_FOR)
        self._folder = folder

    @property
    def name(self) -> str:
        """The name for logs and errors."""
        return f"{self._store.url}/{self._folder}"

    def recover(self, first: str) -> list[str]:
        """The names of the stored segments from `first` on. Raises OSError."""
        objects = self._store.list(self._folder, after=f"{self._folder}/{first}")
        return [stored.path.removeprefix(f"{self._folder}/") for stored in objects]

    def read(self, name: str, most_bytes: int) -> bytes:
        """A stored segment. Raises OSError: EFBIG if it is larger."""
        return self._store.read(f"{self._folder}/{name}", most_bytes)

    def put(self, name: str, content: bytes) -> None:
        """Store a segment, unless it exists: an earlier put may have lost only its answer. Raises OSError."""
        try:
            self._store.create(f"{self._folder}/{name}", content)
        except FileExistsError as error:
            raise OSError(
                f"{name} exists, is not ours, and is not overwritten: give every sidecar an observer or a spool.url of its own, "
                "or remove that object"
            ) from error
