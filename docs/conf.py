"""The site of the documents: `make docs` makes it in build/docs. Every warning is an error, as of a link that leads nowhere."""

import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "flink-ha-sidecar"
html_title = project
author = f"The {project} authors"
root_doc = "README"
extensions = ["myst_parser"]
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 6
highlight_language = "none"
exclude_patterns = ["conf.py"]

_REPOSITORY = f"https://github.com/{project}/{project}/blob/main/"
_TOP = Path(__file__).parents[1]
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(((?!\.\./|\w+:)[^)#]+)\.md\)")
_CODE_OR_LINK = re.compile(r"^```.*?^```|`[^`\n]*`|(\]\()((?!\w+:)[^)#\s]+)((?:#[^)\s]+)?\))", re.MULTILINE | re.DOTALL)


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    for language in ("haproxy", "mermaid"):  # Pygments knows neither: shown as they are
        app.add_lexer(language, TextLexer)
    app.connect("source-read", _read)
    app.connect("build-finished", _name_the_index)


def _read(_app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = _with_links_to_the_repository(source[0], posixpath.dirname(f"docs/{name}"))
    if name == root_doc:
        source[0] += "".join(_contents(source[0]))
    if name == "project/adr/README":
        source[0] += _table_of_contents("Decisions", [f"/project/adr/{page}" for page in _PAGE.findall(source[0])])


def _with_links_to_the_repository(text: str, folder: str) -> str:
    """Files outside docs/ are shown by GitHub."""

    def outside(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2] or ""))
        if match[2] is None or path.startswith("docs/") or not (_TOP / path).exists():
            return match[0]
        return f"{match[1]}{_REPOSITORY}{path}{match[3]}"

    return _CODE_OR_LINK.sub(outside, text)


def _contents(index: str) -> Iterator[str]:
    """The sections and pages of docs/README.md, for the navigation: each page where it is named first."""
    _, *parts = _SECTION.split(index)
    listed = set[str]()
    for section, text in zip(parts[::2], parts[1::2], strict=True):
        pages = [page for page in dict.fromkeys(_PAGE.findall(text)) if page not in listed]
        listed.update(pages)
        yield _table_of_contents(section, pages)


def _table_of_contents(caption: str, pages: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def _name_the_index(app: Sphinx, error: Exception | None) -> None:
    """Servers show index.html."""
    if error is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))
