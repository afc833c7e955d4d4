"""The program of `s3_server`: localbucket, with what Spark needs besides. Run as a script."""

from contextlib import suppress
from http import HTTPStatus
from itertools import takewhile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import localbucket  # type: ignore[import-untyped]

_MARKER = ".folder"
"""The file for an object whose name ends with a slash: Hadoop puts one for an empty folder."""


class Handler(localbucket.S3Handler):  # type: ignore[misc]
    """S3 takes names that end with a slash, deletes many objects in one request, and stores no body that ends too early."""

    def _read_body(self) -> bytes:
        body: bytes = super()._read_body()
        # AWS's own client sends chunks with their signatures, and says beside how long their content is.
        length = self.headers.get("X-Amz-Decoded-Content-Length") or self.headers.get("Content-Length") or 0
        if len(body) < int(length):
            raise localbucket.S3Error(HTTPStatus.BAD_REQUEST, "IncompleteBody", "The body ended too early.")
        return body

    def _post_request(self, bucket: str, key: str) -> None:
        if "delete" not in self.query:
            super()._post_request(bucket, key)
            return
        folder = self._bucket_dir(bucket).resolve()
        for name in ElementTree.fromstring(self._read_body()).iterfind("{*}Object/{*}Key"):  # noqa: S314  of our own clients
            path = self._object_path(bucket, name.text or "")
            path.unlink(missing_ok=True)
            with suppress(OSError):  # until one is not empty
                for parent in takewhile(lambda parent: parent != folder, path.parents):
                    parent.rmdir()
        self._send_xml(ElementTree.Element("DeleteResult"))

    def _object_path(self, bucket: str, key: str) -> Path:
        path: Path = super()._object_path(bucket, f"{key}{_MARKER}" if key.endswith("/") else key)
        return path

    def _list_entries(self, *arguments: Any) -> tuple[list[tuple[str, Path]], list[str], bool, str]:
        contents, *others = super()._list_entries(*arguments)
        return ([(key.removesuffix(_MARKER) if path.name == _MARKER else key, path) for key, path in contents], *others)


if __name__ == "__main__":
    localbucket.S3Handler = Handler
    localbucket.main()
