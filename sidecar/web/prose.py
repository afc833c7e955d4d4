"""docs/how-to/troubleshooting.md as a page: the few forms of Markdown that it uses."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape

_CODE: Final = re.compile(r"`([^`]+)`")
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def troubleshooting() -> str:
    """The text of docs/how-to/troubleshooting.md: from the installed package, or from the repository of an editable installation."""
    package = Path(str(files("sidecar")))
    installed = package / "web" / "troubleshooting.md"
    page = installed if installed.is_file() else package.parent / "docs" / "how-to" / "troubleshooting.md"
    return page.read_text("utf-8")


def html(text: str) -> Markup:
    """Headings (with the anchors that links name), paragraphs, lists, code and links to anchors of this page. Other links lead
    elsewhere in the repository: their text alone is shown.
    """
    return Markup("\n").join(_blocks(text))


def anchor(heading: str) -> str:
    """How links name a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _blocks(text: str) -> Iterator[Markup]:
    for block in re.split(r"\n{2,}", text.strip()):
        level = len(block) - len(block.lstrip("#"))
        if level:
            heading = block[level:].strip()
            yield Markup('<h{} id="{}">{}</h{}>').format(level, anchor(heading), _inline(heading), level)
        elif block.startswith("- "):
            items = (item.replace("\n", " ") for item in re.split(r"\n?^- ", block, flags=re.MULTILINE) if item)
            yield Markup("<ul>{}</ul>").format(Markup().join(Markup("<li>{}</li>").format(_inline(i)) for i in items))
        else:
            yield Markup("<p>{}</p>").format(_inline(block.replace("\n", " ")))


def _inline(text: str) -> Markup:
    coded = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(_LINK.sub(_link, coded))  # noqa: S704  escaped above


def _link(link: re.Match[str]) -> str:
    return f'<a href="{link[2]}">{link[1]}</a>' if link[2].startswith("#") else link[1]
