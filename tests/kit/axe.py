"""axe-core, which examines a page in a browser for what keeps people from using it: a package of PyPI carries its script.

The package is no dependency of the project (it would bring Playwright): it is fetched into the user's cache, checked against a hash.
"""

from pathlib import Path
from typing import Final

from tests import ROOT
from tests.kit.browser import Page
from tests.kit.pip_packages import find_package

_LOCK: Final = ROOT / "tests" / "kit" / "axe.lock"
_RUN: Final = (
    "axe.run().then(found => found.violations.filter(each => ['serious', 'critical', 'moderate'].includes(each.impact))"
    ".map(each => `${each.id}: ${each.help}: ${each.nodes.map(node => node.target).join(', ')}`))"
)


def find_axe() -> Path:
    """The script."""
    return find_package("axe", "0.1.8", _LOCK) / "axe_playwright_python" / "axe.min.js"


def complaints(page: Page) -> list[str]:
    """What axe finds on the page that is moderate or worse: rule, help, and where."""
    page.value(find_axe().read_text(encoding="utf-8") + "; 0")
    found = page.value(_RUN)
    assert isinstance(found, list)
    return found
