"""One HTML file with pictures, made from the audit log. It fetches nothing, and runs no script but its own.

The pictures are drawn by plotly.js, which is in the file: 2.0 MB of it, compressed, instead of 4.8 MB. A library that draws still pictures
would make smaller files, but plotly is the one that the audit brings along, and its pictures fit themselves to a phone and to paper.
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
from sidecar.audit.sql import answered
from sidecar.audit.views import register_views

DEFAULT_SINCE: Final = timedelta(days=30)

_CONTENT: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src"
)


def write_report(spark: SparkSession, audit: str, html: Path, since: timedelta = DEFAULT_SINCE) -> None:
    """Write the report on the audit log at `audit` (a path or any URL that Spark takes) to the file `html`, all of it or nothing.

    It covers the time from `since` before the last thing that is recorded, or from the first thing, if that is later, and is below 3 MB
    however long the log is. Raises AuditError when there is no audit log, nothing is recorded in it, or the file cannot be written.
    """
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415  optional, and only the report needs it

        from sidecar.audit.report_page import key_style, pictures, tiles  # noqa: PLC0415  plotly is an extra, and only the report needs it
    except ImportError as error:
        raise AuditError(
            "cannot make the report: plotly is not installed; install it with: pip install 'flink-ha-sidecar[audit]'"
        ) from error
    if not html.absolute().parent.is_dir():  # said before Spark counts for minutes
        raise AuditError(f"cannot write the report {html}: there is no such folder")
    session = own_session(spark)

    def look() -> Findings | None:
        register_views(session, audit)
        return find(session, since)

    with failing_to(f"make the report on {audit}"):
        found = answered(look)
    if found is None:
        raise AuditError(f"cannot make a report on {audit}: nothing is recorded in it yet")
    drawn = pictures(found)
    page = _page(
        get_plotlyjs(),
        key_style(),
        {picture.id: picture.figure.to_plotly_json() for picture in drawn if picture.figure is not None},
        begin=f"{found.begin:%Y-%m-%d %H:%M}",
        end=f"{found.end:%Y-%m-%d %H:%M}",
        clusters=found.clusters,
        leaderships=found.leaderships,
        tiles=tiles(found),
        pictures=drawn,
    )
    _write(html, page)


def _page(library: str, key_style: str, figures: Mapping[str, Any], **values: Any) -> str:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    script = _text("report.js")
    return environment.from_string(_text("report.html.j2")).render(
        **values,
        counted=lambda number, what: f"{number:,} {what}{'' if number == 1 else 's'}",
        # No script runs but these two, whatever got into the page.
        policy=" ".join([_CONTENT, _hash(script), _hash(library)]),
        style=Markup(_text("report.css") + key_style),  # noqa: S704  our own file, and our own colours
        script=Markup(script),  # noqa: S704  our own file
        library=base64.b64encode(gzip.compress(library.encode(), 9, mtime=0)).decode(),
        figures=_data(figures),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        version=__version__,
    )


def _data(figures: Mapping[str, Any]) -> Markup:
    """JSON inside of a script element: nothing in it can end the element or begin another."""
    text = json.dumps(figures, default=_plain, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))  # noqa: S704  no markup is left in it


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
