"""The report in a real browser: it asks nobody, runs nothing, fits a screen, a phone and paper, and keeps no reader out."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.audit.report.report import render
from sidecar.audit.report.report_data import ReportFigures
from sidecar.audit.report.report_page import cards
from tests.audit.quarter import happened
from tests.kit.axe import barriers
from tests.kit.browser import Page, chromium

pytestmark = pytest.mark.spark

_PAPER = (718, 1047)
"""A4 without the margins, in CSS pixels."""


@pytest.fixture(scope="module")
def report(quarter_found: ReportFigures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a quarter with a hostile cluster, a failover without bounds, unobserved days, and a cluster without a leader."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(render(quarter_found), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_screen_asks_nobody_and_keeps_nobody_out(report: Path, page: Page, width: int, scheme: str) -> None:
    """Nothing scrolls to the side, nothing that a cluster wrote is executed, axe-core finds no barrier: tables closed and open."""
    page.requested.clear()
    page.visit(report.as_uri(), width, scheme)
    for opened in ("false", "true"):
        page.value(f"document.querySelectorAll('details').forEach(d => d.open = {opened})")
        assert page.value(
            "[innerWidth, document.documentElement.scrollWidth - document.documentElement.clientWidth]"
        ) == [width, 0]
        assert page.value(
            "[...document.querySelectorAll('.area')].every(s => s.getBoundingClientRect().right <= innerWidth)"
        )
        assert barriers(page) == []
    assert [url for url in page.requested if url not in {report.as_uri(), "about:blank"}] == []
    assert page.complaints == []
    assert page.value("typeof hostile") == "undefined"
    assert page.value("document.querySelectorAll('script, img, a, main b, [style], [onerror]').length") == 0
    assert page.dialogs == 0


def test_dark_is_dark_and_paper_is_white(report: Path, page: Page) -> None:
    """Also where the screen is dark."""
    page.visit(report.as_uri(), 1280, "dark")
    back = "getComputedStyle(document.body).backgroundColor"
    assert page.value(back) == "rgb(18, 22, 29)"
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", media="print", features=dark)
    assert page.value(back) == "rgb(255, 255, 255)"
    assert page.value("getComputedStyle(document.body).color") == "rgb(28, 36, 48)"
    page.call("Emulation.setEmulatedMedia", media="", features=[])


def test_on_paper_the_pictures_are_one_page(report: Path, page: Page) -> None:
    """Not cut off at the side nor at the end. Why processes ended, what came back and the list of failovers begin on the next one."""
    page.visit(report.as_uri(), 1280)
    assert len(re.findall(rb"/Type\s*/Page\b", page.printed())) == 2
    page.call("Emulation.setEmulatedMedia", media="print", features=[])
    page.call(
        "Emulation.setDeviceMetricsOverride", width=_PAPER[0], height=_PAPER[1], deviceScaleFactor=1, mobile=False
    )
    right, bottom = page.value(
        "(([...all]) => ['right', 'bottom'].map(side => Math.max(...all.map(e => e.getBoundingClientRect()[side]))))"
        "([...document.querySelectorAll('.tile, .card:not(.list), .area')].filter(e => !e.closest('.cards + .cards')))"
    )
    assert right <= _PAPER[0]
    assert bottom <= _PAPER[1]
    assert page.value("[...document.querySelectorAll('details')].every(d => getComputedStyle(d).display === 'none')")
    page.call("Emulation.setEmulatedMedia", media="", features=[])


def test_the_pictures_show_the_figures(report: Path, page: Page, quarter_found: ReportFigures) -> None:
    """A mark for each failover, unless two are close; a bar for each day with one; texts for those who point at them."""
    page.visit(report.as_uri(), 1280)
    marks = page.value("[...document.querySelectorAll('circle.mark title')].map(t => t.textContent)")
    assert sum(int(text.partition(" ")[0]) for text in marks) == len(happened())
    assert "2 failovers, 0 planned: from 2025-11-03 02:45" in marks
    bars = page.value("[...document.querySelectorAll('.double .area g title')].map(t => t.textContent)")
    assert len(bars) == len(quarter_found.by_day)
    assert "2025-11-03: not planned 2" in bars
    spans = page.value("[...document.querySelectorAll('rect.vacant > title')].map(t => t.textContent)")
    assert "no leader (dispatcher): 2025-11-30 20:00:00 to 2025-12-01 00:00:00" in spans
    assert not any("2025-11-26" in text for text in spans)  # thinner than a line
    assert page.value("document.querySelectorAll('.wide rect.unseen > title').length") == len(quarter_found.unobserved)


def test_each_picture_has_a_name_and_a_table(report: Path, page: Page, quarter_found: ReportFigures) -> None:
    """The table opens with the keyboard, because it is a `details`; its first column is a heading."""
    page.visit(report.as_uri(), 1280)
    drawn = [card.title for card in cards(quarter_found) if card.picture is not None]
    assert len(drawn) == 9
    assert page.value("[...document.querySelectorAll('.area')].every(s => s.role === 'img' && s.ariaLabel)")
    assert page.value(
        "[...document.querySelectorAll('.card')].filter(c => c.querySelector('.area')).every(c => c.querySelector('details th[scope=row]'))"
    )
    page.value("document.querySelector('summary').focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)
    assert page.value("document.querySelector('details').open") is True


def test_what_got_into_the_page_would_not_run(report: Path, page: Page, tmp_path: Path) -> None:
    """Escaping is one wall, and the page's own policy is another: no script, no picture, no style but its own."""
    broken = tmp_path / "broken.html"
    intruder = "<script>hostile = 5</script><img src=x onerror='hostile = 6'><style>h1 { color: red }</style><main style='color: red'>"
    broken.write_text(report.read_text().replace("<main>", intruder))
    page.complaints.clear()
    page.visit(broken.as_uri(), 1280)
    assert page.value("typeof hostile") == "undefined"
    assert page.value("getComputedStyle(document.querySelector('h1')).color") == "rgb(28, 36, 48)"
    assert sum("Content Security Policy" in complaint for complaint in page.complaints) >= 3
    page.complaints.clear()
