"""What docs/architecture.md says of the code is so."""

import re

from tests import ROOT
from tests.kit.architecture import the_map

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_map_is_drawn_from_the_imports() -> None:
    """`python -m tests.kit.architecture` prints it as it is now."""
    assert the_map() in TEXT


def test_every_file_that_it_names_is_there() -> None:
    """Paths of modules, tests and folders."""
    named = re.findall(r"`((?:sidecar|tests|docs|rules|deploy)/[\w./-]+)`", TEXT)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
