"""The site that `make docs` makes: of all pages, without a warning, and without anything from elsewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

_DOCUMENTS = ROOT / "docs"
_LOADED = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc="([^"]+)|<link\b[^>]*\brel="(?:stylesheet|preload)"[^>]*\bhref="([^"]+)"""
)
_SECONDS = 300.0


def make(documents: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """As the Makefile does."""
    program = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(documents), str(site)]
    return subprocess.run(program, capture_output=True, text=True, timeout=_SECONDS, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, once."""
    folder = tmp_path_factory.mktemp("site")
    made = make(_DOCUMENTS, folder)
    assert (made.returncode, made.stderr) == (0, "")
    return folder


def test_the_site_has_every_page_and_every_picture_that_one_shows(site: Path) -> None:
    """The index under the name that servers look for, too; no page is left out of the search."""
    pages = {str(page.relative_to(_DOCUMENTS).with_suffix("")) for page in _DOCUMENTS.rglob("*.md")}
    assert [page for page in sorted(pages) if not (site / f"{page}.html").is_file()] == []
    assert (site / "index.html").read_text() == (site / "README.html").read_text()
    search = (site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")")
    assert {*json.loads(search)["docnames"]} == pages
    shown = {
        name
        for page in pages
        for name in re.findall(r"!\[[^]]*]\(.*?([\w-]+\.png)\)", (_DOCUMENTS / f"{page}.md").read_text())
    }
    assert {picture.name for picture in (site / "_images").iterdir()} == shown


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No fonts, scripts, styles or pictures of other servers."""
    for page in site.rglob("*.html"):
        loaded = {url for urls in _LOADED.findall(page.read_text()) for url in urls if url}
        assert loaded
        assert {url for url in loaded if re.match(r"\w+:|//", url)} == set()


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[heading](page.md#gone)", "gone"),
        ("[file](../gone.txt)", "gone.txt"),
        ("![picture](gone.png)", "gone.png"),
    ],
)
def test_what_leads_nowhere_stops_it(tmp_path: Path, text: str, warning: str) -> None:
    """A page, a heading, a file of the repository, a picture."""
    assert warning in _of_two_pages(tmp_path, "## Section\n\n[page](page.md)\n", text)


def test_a_page_that_the_index_does_not_name_stops_it(tmp_path: Path) -> None:
    """Nobody could find it."""
    assert "page.md: WARNING: document isn't included in any toctree" in _of_two_pages(tmp_path, "", "Text")


def _of_two_pages(folder: Path, index: str, text: str) -> str:
    """What a site that cannot be made complains of."""
    documents = folder / "docs"
    documents.mkdir()
    (documents / "conf.py").write_text((_DOCUMENTS / "conf.py").read_text())
    (documents / "README.md").write_text(f"# Index\n\n{index}")
    (documents / "page.md").write_text(f"# Page\n\n## Heading\n\n{text}\n")
    made = make(documents, folder / "site")
    assert made.returncode == 1
    return made.stderr
