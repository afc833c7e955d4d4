"""CHANGELOG.md has a form that a release can be made of, and one version stands wherever a version stands."""

import re
import subprocess
import sys
from itertools import pairwise

import pytest

import sidecar
from scripts.release import changelog, version
from scripts.release.changelog import HEADINGS, UNRELEASED, Section
from scripts.release.version import ReleaseError, Version
from tests import ROOT

TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SECTIONS = changelog.sections(TEXT)
RELEASED = [section for section in SECTIONS if section.version != UNRELEASED]
DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
SMALL = """# Changelog

For operators.

## [Unreleased]

### Fixed

- Late.

## [1.1.0] - Unreleased

What it is about.

### Added

- New ([page](docs/explanation/handover.md), [site](https://example.com/)).

### Fixed

- Early.

## [1.0.0] - 2026-01-02

### Added

- Old.
"""


def test_the_changelog_begins_with_what_is_unreleased() -> None:
    """Each version once, the newest first; the heading of nothing else looks like one."""
    assert SECTIONS[0].version == UNRELEASED
    assert len(SECTIONS) == len(re.findall(r"^## ", TEXT, re.MULTILINE))
    numbers = [tuple(map(int, section.version.split("."))) for section in RELEASED]
    assert all(newer > older for newer, older in pairwise(numbers))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.version)
def test_each_version_has_a_date_and_known_headings(section: Section) -> None:
    """Or it is not released; the headings are in order, each once, and each has entries."""
    if section.version != UNRELEASED:
        assert version.RELEASE.fullmatch(section.version)
        assert section.date == UNRELEASED or re.fullmatch(DATE, section.date or "")
    headings = re.findall(r"^### (.*)$", section.text, re.MULTILINE)
    assert headings == [heading for heading in HEADINGS if heading in headings]
    assert [
        heading for heading, text in changelog.entries(section).items() if heading and "\n- " not in f"\n{text}"
    ] == []


def test_notes_are_the_section_with_links_to_the_tag() -> None:
    """Also those of a pre-release, for which there is no section of its own."""
    released = changelog.dated(SMALL, Version("1.1.0"), "2026-02-03")
    for number in ("1.1.0", "1.1.0-rc.1"):
        notes = changelog.notes(released, Version(number))
        assert notes.startswith("What it is about.\n\n### Added\n\n- New ([page](https://github.com/")
        assert f"/blob/v{number}/docs/explanation/handover.md), [site](https://example.com/))" in notes
        assert notes.endswith("### Fixed\n\n- Early.\n- Late.\n")


def test_a_release_takes_what_was_unreleased() -> None:
    """It has a date then, nothing is left unreleased, and older versions are as they were; twice is once."""
    released = changelog.dated(SMALL, Version("1.1.0"), "2026-02-03")
    assert [(each.version, each.date) for each in changelog.sections(released)] == [
        (UNRELEASED, None),
        ("1.1.0", "2026-02-03"),
        ("1.0.0", "2026-01-02"),
    ]
    assert released.endswith(SMALL[SMALL.index("### Added\n\n- Old") :])
    assert changelog.dated(released, Version("1.1.0"), "2026-02-03") == released
    following = changelog.dated(
        SMALL.replace("## [1.1.0] - Unreleased", "## [1.0.1] - 2026-01-03"), Version("1.2.0"), "x"
    )
    assert changelog.sections(following)[1] == ("1.2.0", "x", "\n\n### Fixed\n\n- Late.\n\n")


@pytest.mark.parametrize(
    ("text", "number", "why"),
    [
        (SMALL, "2.0.0", "has no section for 2.0.0"),
        (SMALL, "1.1.0", "has no date for 1.1.0"),
        (SMALL.replace("1.1.0] - Unreleased", "1.1.0] - 2026-01-03"), "1.1.0", "has entries under [Unreleased]"),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(text: str, number: str, why: str) -> None:
    """One line says what to do."""
    with pytest.raises(ReleaseError, match=re.escape(why)) as refused:
        changelog.notes(text, Version(number))
    assert "\n" not in str(refused.value)


def test_an_unknown_heading_is_refused() -> None:
    """It would be lost."""
    with pytest.raises(ReleaseError, match="no heading 'Repaired'"):
        changelog.dated(SMALL.replace("### Fixed", "### Repaired", 1), Version("1.1.0"), "2026-02-03")


@pytest.mark.parametrize("text", ["", "1.0", "v1.0.0", "1.0.0rc1", "01.0.0", "1.0.0+local", "1.0.0-rc1", "1.0.0\n"])
def test_what_is_no_version_is_refused(text: str) -> None:
    """What SemVer and PEP 440 do not both take, or would write differently."""
    with pytest.raises(ReleaseError, match="is no version: give"):
        version.parsed(text)


def test_a_mistake_is_one_line() -> None:
    """The exit status is that of wrong usage."""
    command = [sys.executable, "-m", "scripts.release", "release", "1.0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"release: '1\.0' is no version: .*\n", done.stderr)


def test_one_version_stands_everywhere() -> None:
    """In the package, the chart, each manifest and each document that names an image by its tag."""
    places = list(version.places(ROOT))
    assert {number for _, number in places} == {sidecar.__version__} == {version.parsed(sidecar.__version__)}
    names = {str(file.relative_to(ROOT)) for file, _ in places}
    assert {"sidecar/__init__.py", "deploy/README.md", "deploy/kubernetes/deployment.yaml"} <= names
    assert [file.name for file, _ in places].count("Chart.yaml") == 2
