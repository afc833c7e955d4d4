"""A client of Flink's REST API, with what the lab needs of it."""

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from urllib3 import encode_multipart_formdata

from tests.lab.lab_error import LabError


class RestError(LabError):
    """No usable response: no connection, a timeout, an error status, or no JSON. Often transient, while Flink elects a leader."""


def call(
    address: str,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    content_type: str = "application/json",
    timeout: float = 5.0,
) -> dict[str, Any]:
    """The response of the REST server at `address` ("http://127.0.0.1:PORT"), without a proxy. `timeout` in seconds. Raises RestError."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=timeout)
    try:
        connection.request(method, path, body, {"Content-Type": content_type} if body is not None else {})
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise RestError(f"{method} {address}{path}: {error!r}") from error
    finally:
        connection.close()
    try:
        content = json.loads(answer)
    except ValueError as error:
        raise RestError(f"{method} {address}{path}: status {response.status}, and the answer is no JSON") from error
    if response.status >= http.client.BAD_REQUEST or not isinstance(content, dict):
        raise RestError(f"{method} {address}{path}: status {response.status}: {_reason(content)}")
    return content


def upload_jar(address: str, jar: Path) -> str:
    """Upload a job jar to one JobManager; returns the id of the jar there. Raises RestError."""
    part = (jar.name, jar.read_bytes(), "application/java-archive")
    body, content_type = encode_multipart_formdata({"jarfile": part})
    answer = call(address, "POST", "/jars/upload", body, content_type=content_type)
    return Path(str(answer["filename"])).name


def _reason(content: object) -> str:
    """The first line of Flink's error message."""
    errors = content.get("errors") if isinstance(content, dict) else None
    return str(errors[-1]).strip().splitlines()[0] if isinstance(errors, list) and errors else "no reason given"
