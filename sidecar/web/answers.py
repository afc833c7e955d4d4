"""Answers of the web server: printable and bounded, whatever others have written into the store or the journal."""

from http import HTTPStatus
from typing import Final

from msgspec import json

from sidecar.core.sanitize import escaped, printable

Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""

MOST_BYTES: Final = 8 << 20
"""Of a body. What lists records is shortened to less; beyond it nothing is sent, because half of a JSON text or page is none."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
HTML: Final = "text/html; charset=utf-8"


def as_json(value: object) -> Answer:
    """The value as JSON, in which everything unprintable is escaped: it may be read on a terminal."""
    body = json.encode(value)
    return _bounded(JSON, body if len(body) > MOST_BYTES else escaped(body.decode()).encode())


def as_html(page: str) -> Answer:
    return _bounded(HTML, page.encode())


def one_line(status: HTTPStatus, text: str) -> Answer:
    return status, TEXT, f"{printable(text)}\n".encode()


def _bounded(content_type: str, body: bytes) -> Answer:
    if len(body) > MOST_BYTES:
        return one_line(HTTPStatus.SERVICE_UNAVAILABLE, f"the answer would be larger than {MOST_BYTES >> 20} MiB")
    return HTTPStatus.OK, content_type, body
