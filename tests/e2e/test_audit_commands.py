"""The commands of the audit log, one after the other, as a CronJob and a person run them, on failovers recorded from a real Flink."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.audit.recorded import records
from tests.audit.spooling import seal
from tests.kit.sidecar_process import command

pytestmark = pytest.mark.spark

_CHANGES: Final = "SELECT component, cause FROM leader_changes ORDER BY changed_at, component"


def audit(folder: Path, name: str, *arguments: str) -> str:
    """What a command prints; it ends well and has nothing to complain about."""
    ended = command("audit", name, "--audit", str(folder / "audit"), "--master", "local[2]", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.covers("command:audit ingest", "command:audit sql", "command:audit compact", "command:audit materialize")
@pytest.mark.covers("command:audit report")
@pytest.mark.covers("table:leadership", "table:leader_changes", "table:availability_days")
def test_a_day_of_the_audit_log(tmp_path: Path) -> None:
    """Segments become tables, closed dates become few files and kept answers, once, and questions are answered from them."""
    seal(tmp_path / "spool", "jm-0", 1, records("2.3.0"))
    audit(tmp_path, "ingest", "--spool", str(tmp_path / "spool"))
    assert "materialized: 1 dates\n" in audit(tmp_path, "compact", "--before", "2026-11-21")
    assert audit(tmp_path, "materialize", "--before", "2026-11-21") == "materialized: 0 dates\n"
    page = tmp_path / "report.html"
    audit(tmp_path, "report", "--html", str(page), "--from", "2026-11-20", "--to", "2026-11-20")
    assert "<svg" in page.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in audit(tmp_path, "sql", "--output", "json", _CHANGES).splitlines()]
    assert {row["component"] for row in rows} == {"dispatcher", "resource_manager", "rest_server", "job"}
    assert "jobmanager_lost" in {row["cause"] for row in rows}
