"""The pages in a real browser: readable for everybody, up to date without a reload, and without asking anybody else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.web import pages
from tests.kit.axe import barriers
from tests.kit.browser import Page, chromium
from tests.kit.core_sidecar import Sidecar, watching
from tests.kit.outcomes import oom_with_a_lost_job
from tests.shell.reading import show
from tests.shell.remembering import (
    hostile_evidence,
    hostile_outcomes,
    hostile_records,
    hostile_snapshot,
    remember,
    two_failovers,
)
from tests.shell.site import Site

_CONTRAST = """(() => {
  const rgb = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => rgb(colour).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const back = e => getComputedStyle(e).backgroundColor;
  const behind = e => rgb(back(e))[3] === 0 ? behind(e.parentElement) : back(e);
  const ratios = [...document.querySelectorAll('body *')]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
    .map(e => [light(getComputedStyle(e).color), light(behind(e))].sort((a, b) => b - a)).map(([a, b]) => (a + 0.05) / (b + 0.05));
  return Math.min(...ratios);
})()"""
"""The worst contrast of a text on the page with what is behind it (WCAG 2)."""


_FOCUSED = "document.activeElement.getAttribute('href')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are updated ten times a second."""
    monkeypatch.setattr(pages, "EVERY_SECONDS", 0.1)


def failing_over(site: Site, folder: Path) -> Sidecar:
    """Two failovers, of which one is not over, behind the site."""
    sidecar = two_failovers()
    remember(folder, sidecar, [*sidecar.records, *oom_with_a_lost_job(sidecar.episodes()[0])])
    show(site, sidecar)
    return sidecar


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_and_asks_nobody(site: Site, tmp_path: Path, browser: Page, scheme: str) -> None:
    """A phone's and a desk's: nothing scrolls to the side, nothing foreign is fetched or run, all text has enough contrast."""
    sidecar = two_failovers()
    remember(tmp_path, sidecar, [*hostile_records(sidecar), *hostile_evidence(sidecar), *hostile_outcomes(sidecar)])
    site.snapshot = hostile_snapshot(sidecar)
    episode = f"/episodes/{sidecar.episodes()[0].id}"
    for path, title in (
        ("/", "1 RECOVERING \N{MIDDLE DOT} Flink leaders"),
        (episode, "Failover c22b78ce"),
        ("/troubleshooting", "Troubleshooting"),
    ):
        for width in (390, 1280):
            browser.requested.clear()
            browser.visit(site.url(path), width, scheme)
            assert browser.value("document.title") == title
            assert browser.value("matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")
            assert browser.value("innerWidth") == width
            assert browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
            assert browser.value(_CONTRAST) >= 4.5
            assert set(browser.requested) == {site.url(path)}
            assert browser.complaints == []
            assert browser.dialogs == 0


def test_everybody_can_use_it(site: Site, tmp_path: Path, browser: Page) -> None:
    """axe-core finds no barrier, while something is down."""
    sidecar = failing_over(site, tmp_path)
    for path, width, scheme in (
        ("/", 390, "dark"),
        ("/", 1280, "light"),
        (f"/episodes/{sidecar.episodes()[0].id}", 1280, "light"),
        ("/troubleshooting", 1280, "dark"),
    ):
        browser.visit(site.url(path), width, scheme)
        assert barriers(browser) == []


def test_it_updates_itself_where_the_reader_is(site: Site, tmp_path: Path, browser: Page, often: None) -> None:
    """No reload: scrolling, focus and what is open stay, whatever else changes."""
    flink, sidecar = watching()
    remember(tmp_path, sidecar)
    show(site, sidecar)
    browser.requested.clear()
    browser.visit(site.url("/"), 390)
    browser.value("window.same = 1; document.querySelector('details').open = true; scrollTo(0, 300)")
    browser.value("document.querySelector('main a').focus()")
    before = browser.value("scrollY")
    assert browser.value("document.title").startswith("1 UNCHECKED")
    flink.vacate()
    show(site, sidecar.sees_changes().waits(43))
    browser.until("document.title.startsWith('1 DOWN')")
    assert "no leader for 43 s" in browser.value("document.querySelector('.verdict').innerText")
    assert browser.value("document.querySelector('.verdict [role=status]').textContent") == "1 DOWN"
    assert browser.value("[window.same, document.querySelector('details').open, scrollY]") == [1, True, before]
    assert browser.value("document.activeElement.closest('.verdict') !== null")
    assert set(browser.requested) == {site.url("/")}
    assert browser.complaints == []


def test_a_page_that_cannot_be_updated_says_so(site: Site, tmp_path: Path, browser: Page, often: None) -> None:
    """What it shows may be wrong by then; when the sidecar answers again, it is right again."""
    _, sidecar = watching()
    remember(tmp_path, sidecar)
    show(site, sidecar)
    browser.visit(site.url("/"), 1280)
    port = site.server.port
    site.stop()
    browser.until("document.title.startsWith('(not updated)')")
    assert "cannot be updated: the sidecar does not answer" in browser.value(
        "document.getElementById('unreached').innerText"
    )
    again = Site(tmp_path, port)
    try:
        show(again, sidecar)
        browser.until("document.title.startsWith('1 UNCHECKED')")
        assert browser.value("document.getElementById('unreached').hidden")
    finally:
        again.stop()


def test_without_scripts_it_refreshes_itself(site: Site, tmp_path: Path, browser: Page) -> None:
    """And says the same."""
    failing_over(site, tmp_path)
    browser.runs_scripts(False)
    try:
        browser.visit(site.url("/"), 1280)
        assert browser.value("document.querySelector('noscript meta[http-equiv=refresh]').content") == "15"
        assert browser.value("document.querySelector('.verdict').innerText").startswith(
            "1 DOWN\n\nDOWN default: no leader"
        )
        assert browser.value("document.getElementById('times').hidden")
    finally:
        browser.runs_scripts(True)


def test_a_failover_is_reached_by_keyboard(site: Site, tmp_path: Path, browser: Page) -> None:
    """From its mark in the picture."""
    failing_over(site, tmp_path)
    browser.visit(site.url("/"), 1280)
    for _ in range(30):
        browser.press("Tab")
        if browser.value(f"document.activeElement.closest('svg') !== null && {_FOCUSED}"):
            break
    mark = browser.value(_FOCUSED)
    assert mark.startswith("episodes/")
    browser.press("Enter")
    browser.until(f"location.pathname === '/{mark}' && document.readyState === 'complete'")
    assert browser.value("document.title").startswith("Failover")


def test_times_are_local_where_the_reader_wants_that(site: Site, tmp_path: Path, browser: Page) -> None:
    """Beside a time, or in its place."""
    browser.call("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    try:
        failing_over(site, tmp_path)
        browser.visit(site.url("/"), 1280)
        first = "document.querySelector('header time')"
        assert browser.value(f"{first}.textContent").startswith("2026-11-20 08:02:42")
        assert "5:02:42" in browser.value(f"{first}.title")
        browser.value("document.getElementById('times').click()")
        assert "5:02:42" in browser.value(f"{first}.textContent")
        assert browser.value(f"{first}.title").endswith(" UTC")
        browser.value("document.getElementById('times').click()")
    finally:
        browser.call("Emulation.setTimezoneOverride", timezoneId="")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_longest_name_of_a_shipped_alert_is_one_line(site: Site, browser: Page, width: int) -> None:
    """It does not break inside a word."""
    flink, sidecar = watching()
    flink.vacate()
    show(site, sidecar.sees_changes().waits(60))
    browser.visit(site.url("/"), width, "light")
    name = "document.querySelector('.alerts tbody th bdi')"
    browser.value(f"{name}.textContent = 'FlinkZooKeeperZxidHeadroom'")
    assert browser.value(f"{name}.getClientRects().length") == 1
