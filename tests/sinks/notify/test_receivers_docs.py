"""docs/reference/services.md names every service of Apprise, each once, and says of those with incidents what the code does."""

import re
import subprocess
import sys

from sidecar.endpoints import INCIDENT_SCHEMES
from sidecar.sinks.notify.service_answers import SERVICES
from tests import ROOT

TEXT = (ROOT / "docs" / "reference" / "services.md").read_text(encoding="utf-8")


def schemes(begin: str, end: str) -> list[str]:
    """The schemes between two headings: in first cells, or in lines of nothing else."""
    part = TEXT[TEXT.index(begin) : TEXT.index(end)]
    cells = re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE)
    lines = re.findall(r"^((?:`[a-z0-9]+`(?:, ?|$))+)", part, re.MULTILINE)
    return [scheme for text in (*cells, *lines) for scheme in re.findall(r"`([a-z0-9]+)`", text)]


def test_every_service_of_apprise_is_in_the_tables_once() -> None:
    """In a process of its own: loading all plugins takes 44 MiB."""
    code = "from apprise import plugins; plugins.N_MGR.load_modules(); print(*plugins.N_MGR.schemas())"
    known = subprocess.check_output([sys.executable, "-I", "-W", "ignore", "-c", code], text=True, timeout=60).split()
    documented = schemes("## Services", "There is no `alertmanager`")
    assert sorted(documented) == sorted(known)
    assert f"has {len(known)} schemes" in TEXT


def test_the_services_with_a_key_are_those_of_the_code() -> None:
    """What is documented to be closed is closed."""
    assert {*schemes("**With a key", "**Which open")} == INCIDENT_SCHEMES


def test_the_services_whose_answers_are_known_are_those_of_the_code() -> None:
    """Each once, in the table of what they accept with."""
    assert sorted(schemes("## Answers that refuse", "The body of every other answer")) == sorted(SERVICES)
