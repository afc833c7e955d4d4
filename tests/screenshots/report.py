"""Draws the report on a quarter as a screen and a phone show it: `python -m tests.screenshots.report FOLDER`."""

import sys
import tempfile
from pathlib import Path

from msgspec.structs import replace

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.report.report import write_report
from sidecar.audit.spark.spark_session import spark_session
from tests.audit.quarter import CLUSTERS, HOSTILE, records
from tests.audit.spooling import seal
from tests.kit.browser import chromium

_VIEWS = (("light", 1280, 1480, 0.75), ("dark", 390, 1500, 1))
"""Scheme, width, height and scale of each picture: what is at the top of the page."""


def main(folder: Path) -> None:
    """Write a report, and draw it."""
    clusters = [replace(cluster, id="fraud") if cluster.id == HOSTILE else cluster for cluster in CLUSTERS]
    with tempfile.TemporaryDirectory() as place:
        spool, audit, report = (Path(place) / name for name in ("spool", "audit", "report.html"))
        seal(spool, "jm-0", 1, records(clusters))
        with spark_session(conf={"spark.sql.shuffle.partitions": "2"}) as spark:
            ingest(spark, str(spool), str(audit))
            write_report(spark, str(audit), report)
        with chromium() as page:
            for scheme, width, height, scale in _VIEWS:
                page.visit(report.as_uri(), width, scheme)
                (folder / f"report-{scheme}-{width}.png").write_bytes(page.screenshot(height, scale))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
