"""The environment of the templates: filters, the style sheet, the script, and the policy that allows nothing else."""

import base64
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sidecar import __version__
from sidecar.core.cluster.record_lines import OUTCOMES, lasted, moved, restored_from
from sidecar.core.cluster.status import SHOWN
from sidecar.core.counted import counted
from sidecar.core.moment import SECOND, age, parsed, seconds, timestamp
from sidecar.core.pods import host_port, spelled
from sidecar.core.records import TransitionRecord
from sidecar.core.sanitize import clean, printable
from sidecar.core.views.episode_view import EpisodeView
from sidecar.web.timeline_picture import COLUMNS

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
    """The name of a heading in links."""
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


REFRESH_SECONDS: Final = 15
"""The time after which a page refreshes itself in a browser without JavaScript."""
_LONGEST_LINK: Final = 600
_CLASSES: Final = {"red": "bad", "amber": "degraded", "grey": "unseen", "blue": "quiet", "green": "good"}
"""The class of a status in a table, by its colour."""


def _own(name: str) -> str:
    return files("sidecar.web").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE: Final = _own("page.css")
_SCRIPT: Final = _own("page.js")
POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; connect-src 'self'"
)
"""The Content-Security-Policy of every page: its own style, its own script, which asks only this server, and nothing else."""


def render(template: str, **values: object) -> str:
    """The page. Raises jinja2.UndefinedError if a value is missing."""
    return _templates.get_template(template).render(values)


def _utc(time: str) -> Markup:
    """A time as HTML, to the millisecond."""
    return Markup('<time datetime="{}">{} {}</time>').format(time, time[:10], time[11:23])


def _clock(time: str) -> Markup:
    """The time of day as HTML, to the second."""
    return Markup('<time datetime="{}">{}</time>').format(time, time[11:19])


def _ago(time: str, now: int) -> str:
    """The time before `now` (wall), or after."""
    passed = now - parsed(time)
    return f"{age(passed)} ago" if passed >= 0 else f"in {age(-passed)}"


def _when(time: str, now: int) -> Markup:
    """A time with its age."""
    return Markup('{} <span class="ago">({})</span>').format(_utc(time), _ago(time, now))


def _moved(failover: EpisodeView) -> str:
    """The previous and the next leader."""
    if failover.after_address:
        return moved(failover)
    return f"{clean(spelled(failover.before_address, failover.before_pod) or '?')} → no leader yet"


def _downtime(of: EpisodeView | TransitionRecord) -> str:
    """The time without a working leader."""
    if of.downtime_seconds_at_least is None:
        return "not known"
    return lasted(of.downtime_seconds_at_least, of.downtime_seconds_at_most)


def receiver(destination: str, services: Mapping[str, str]) -> Markup:
    """The receiver's service and name; the number of the destination only where a receiver has several."""
    name, _, number = destination.rpartition("#")
    if not name:
        return Markup("<bdi>{}</bdi>").format(clean(destination))
    alone = sum(other.rpartition("#")[0] == name for other in services) <= 1
    which = "" if alone else f" (number {int(number) + 1})" if number.isdecimal() else ""
    service = services.get(destination)
    return Markup("{}<bdi>{}</bdi>{}").format(f"{service} " if service else "", clean(name), which)


def _anchor(text: str) -> str:
    """A safe id of an element, from untrusted text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


def _cluster_link(cluster_id: str, detailed: Collection[str]) -> str:
    """To its section, if the page has one, else to its own page. Empty: its name is too long for a link."""
    if cluster_id in detailed:
        return f"#cluster-{_anchor(cluster_id)}"
    link = f"?cluster={quote(cluster_id, safe='', errors='replace')}"
    return link if len(link) <= _LONGEST_LINK else ""


def _range_link(only: str | None, hours: int) -> str:
    """To the same page with pictures of so many hours. Empty: the name of its cluster is too long for a link."""
    link = "?" if only is None else f"?cluster={quote(only, safe='', errors='replace')}&"
    return f"{link}hours={hours}" if len(link) <= _LONGEST_LINK else ""


_templates: Final = Environment(
    loader=PackageLoader("sidecar.web"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
    auto_reload=False,
)
_templates.filters |= {
    "age": lambda value: age(round(value * SECOND)),
    "ago": _ago,
    "anchor": _anchor,
    "clean": lambda text: clean(str(text)),
    "clock": _clock,
    "cluster_link": _cluster_link,
    "counted": counted,
    "downtime": _downtime,
    "host": lambda address: clean(host_port(address)),
    "lasted": lambda value: seconds(round(value * SECOND)),
    "moved": _moved,
    "printable": printable,
    "range_link": _range_link,
    "receiver": receiver,
    "restored_from": restored_from,
    "utc": _utc,
    "wall": lambda moment: timestamp(moment.wall),
    "when": _when,
}
_templates.globals |= {
    "columns": COLUMNS,
    "outcomes": OUTCOMES,
    "script": Markup(_SCRIPT),  # noqa: S704  our own file
    "slowly": REFRESH_SECONDS,
    "style": Markup(_STYLE),  # noqa: S704  our own file
    "verdict_classes": {
        "running": "good",
        **{status.value: _CLASSES[shown.colour] for status, shown in SHOWN.items()},
        **dict.fromkeys(("missing", "resurrected"), "bad"),
        "ended": "quiet",
    },
    "version": __version__,
}
