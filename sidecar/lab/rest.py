"""Flink's REST API, as much of it as the lab needs."""

import http.client
import json
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sidecar.lab.lab_error import LabError


class RestError(LabError):
    """No good answer: nobody there, too late, an error status, or no JSON. Often it passes, while Flink elects a leader."""


def call(
    address: str,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    content_type: str = "application/json",
    timeout: float = 5.0,
) -> dict[str, Any]:
    """The answer of the REST server at `address` ("http://127.0.0.1:PORT"); no proxy is asked. `timeout` is in s. Raises RestError."""
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
    """Uploads a job jar to one JobManager; the id under which that JobManager has it. Raises RestError."""
    boundary = uuid.uuid4().hex
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; filename="{jar.name}"\r\n'
    body = (
        (head + "Content-Type: application/java-archive\r\n\r\n").encode()
        + jar.read_bytes()
        + f"\r\n--{boundary}--\r\n".encode()
    )
    answer = call(address, "POST", "/jars/upload", body, content_type=f"multipart/form-data; boundary={boundary}")
    return Path(str(answer["filename"])).name


def _reason(content: object) -> str:
    """The first line of Flink's own explanation."""
    errors = content.get("errors") if isinstance(content, dict) else None
    return str(errors[-1]).strip().splitlines()[0] if isinstance(errors, list) and errors else "no reason given"
