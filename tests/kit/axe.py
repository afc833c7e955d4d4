"""axe-core, which checks a page for barriers: a package of PyPI carries its script. Only the script is used."""

import json
from pathlib import Path
from typing import Final

from tests.kit.browser import Page
from tests.kit.wheel import unpacked

_VERSION: Final = "0.1.8"


def find_axe() -> Path:
    """The script."""
    return unpacked("axe", _VERSION) / "axe_playwright_python" / "axe.min.js"


def barriers(page: Page) -> list[str]:
    """What is wrong with the page that is open: rule, weight and first place of each."""
    page.value(f"{find_axe().read_text(encoding='utf-8')}; undefined")
    violations = page.awaited(
        "axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations))"
    )
    return [f"{rule['id']} ({rule['impact']}): {rule['nodes'][0]['html'][:200]}" for rule in json.loads(violations)]
