"""What a reader reads of a page, and what a browser would take for markup."""

import re
from html import unescape
from html.parser import HTMLParser

from sidecar.core.views.snapshot import Snapshot
from tests.kit.core_sidecar import Sidecar
from tests.shell.site import Site


class Markup(HTMLParser):
    """What a browser would take for markup, except our own script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.feed(re.sub(r"<script>.*?</script>", "", page, count=1, flags=re.DOTALL))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name == "href"}


def said(page: str) -> str:
    """What a reader reads, in one line."""
    text = re.sub(r"<(style|script)>.*?</\1>|<title>.*?</title>|<[^>]*>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(text).split())


def read(site: Site, path: str = "/") -> str:
    status, page = site.get(path)
    assert status == 200, page
    return said(page)


def show(site: Site, sidecar: Sidecar) -> None:
    site.snapshot = Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy)
    site.now = sidecar.moment
