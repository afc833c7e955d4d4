"""Writes the audit report: one HTML file with charts, which loads nothing and runs only its own scripts.

plotly.js draws the charts. It is in the file, compressed from 4.8 MB to 2.0 MB. Static images would make smaller files, but plotly is a
dependency of the audit already, and its charts fit a phone and paper.
"""

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from pyspark.sql import SparkSession

from sidecar import __version__
from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.report_data import Findings, find
from sidecar.audit.session import own_session
from sidecar.audit.sql import retried
from sidecar.audit.views import register_views

DEFAULT_SINCE: Final = timedelta(days=30)

_CONTENT: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src"
)


def write_report(spark: SparkSession, audit: str, html: Path, since: timedelta = DEFAULT_SINCE) -> None:
    """Atomically write the report on the audit log at `audit` (a path or any URL that Spark supports) to the file `html`.

    The report covers the time from `since` before the last record, or from the first record if that is later. It is smaller than 3 MB
    however long the log is. Raises AuditError when there is no audit log, it is empty, or the file cannot be written.
    """
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415  an extra that only the report needs

        from sidecar.audit.report_page import key_style, pictures, tiles  # noqa: PLC0415  imports plotly
    except ImportError as error:
        raise AuditError(
            "cannot make the report: plotly is not installed; install it with: pip install 'flink-ha-sidecar[audit]'"
        ) from error
    if not html.absolute().parent.is_dir():  # checked before Spark runs for minutes
        raise AuditError(f"cannot write the report {html}: there is no such folder")
    session = own_session(spark)

    def read() -> Findings | None:
        register_views(session, audit)
        return find(session, since)

    with failing_to(f"make the report on {audit}"):
        found = retried(read)
    if found is None:
        raise AuditError(f"cannot make a report on {audit}: nothing is recorded in it yet")
    cards = pictures(found)
    page = _page(
        get_plotlyjs(),
        key_style(),
        {picture.id: picture.figure.to_plotly_json() for picture in cards if picture.figure is not None},
        begin=f"{found.begin:%Y-%m-%d %H:%M}",
        end=f"{found.end:%Y-%m-%d %H:%M}",
        clusters=found.clusters,
        leaderships=found.leaderships,
        tiles=tiles(found),
        pictures=cards,
    )
    _write(html, page)


def _page(library: str, key_style: str, figures: Mapping[str, Any], **values: Any) -> str:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    script = _text("report.js")
    return environment.from_string(_text("report.html.j2")).render(
        **values,
        counted=lambda number, what: f"{number:,} {what}{'' if number == 1 else 's'}",
        # Only these two scripts may run, whatever text is in the page.
        policy=" ".join([_CONTENT, _hash(script), _hash(library)]),
        style=Markup(_text("report.css") + key_style),  # noqa: S704  our own text
        script=Markup(script),  # noqa: S704  our own file
        library=base64.b64encode(gzip.compress(library.encode(), 9, mtime=0)).decode(),
        figures=_data(figures),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        version=__version__,
    )


def _data(figures: Mapping[str, Any]) -> Markup:
    """JSON that is safe inside of a script element: it cannot end the element or begin another."""
    text = json.dumps(figures, default=_plain, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))  # noqa: S704  without markup


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value.to_plotly_json()


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    return (files("sidecar.audit") / name).read_text(encoding="utf-8")


def _write(target: Path, page: str) -> None:
    aside = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        try:
            with aside.open("x", encoding="utf-8") as file:
                file.write(page)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(target)
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
    except OSError as error:
        raise AuditError(f"cannot write the report {target}: {error.strerror or error}") from error
