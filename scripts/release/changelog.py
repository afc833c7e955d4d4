"""CHANGELOG.md: a section for each version, newest first, with entries under headings that are known."""

import re
from typing import Final, NamedTuple

from scripts.release.version import RELEASE, ReleaseError, Version

UNRELEASED: Final = "Unreleased"
HEADINGS: Final = ("Before you upgrade", "Security", "Added", "Changed", "Deprecated", "Removed", "Fixed")
_VERSION: Final = re.compile(r"^## \[([^\]\n]+)\](?: - (\S+))?$", re.MULTILINE)
_HEADING: Final = re.compile(r"^### (.+)$", re.MULTILINE)
_REPOSITORY: Final = "https://github.com/flink-ha-sidecar/flink-ha-sidecar/blob"


class Section(NamedTuple):
    """What one version brings."""

    version: str
    date: str | None
    """As it stands there: a date, `Unreleased`, or nothing."""
    text: str
    """Without its title."""


def sections(changelog: str) -> list[Section]:
    """In the order of the file."""
    _, *parts = _VERSION.split(changelog)
    return [Section(*part) for part in zip(parts[::3], parts[1::3], parts[2::3], strict=True)]


def entries(section: Section) -> dict[str, str]:
    """The text below each heading; below `""`, what stands before the first."""
    before, *parts = _HEADING.split(section.text)
    return {"": before.strip(), **{title: text.strip() for title, text in zip(parts[::2], parts[1::2], strict=True)}}


def notes(changelog: str, version: Version) -> str:
    """The release's notes, with links that lead somewhere outside of the repository.

    Those of a pre-release are those of the version that it precedes. Raises ReleaseError where the changelog is not ready for a release.
    """
    by_version = {section.version: section for section in sections(changelog)}
    base = re.sub(r"-.*", "", version)
    if base not in by_version:
        raise ReleaseError(f"CHANGELOG.md has no section for {base}: add `## [{base}] - Unreleased`")
    section = by_version[base]
    if RELEASE.fullmatch(version):
        if section.date in {None, UNRELEASED}:
            raise ReleaseError(f"CHANGELOG.md has no date for {version}: run `make version VERSION={version}`")
        if UNRELEASED in by_version and by_version[UNRELEASED].text.strip():
            raise ReleaseError(
                f"CHANGELOG.md has entries under [{UNRELEASED}], which this release has too: run `make version VERSION={version}`"
            )
    text = re.sub(r"\]\((?=#)", "](CHANGELOG.md", section.text.strip())
    return re.sub(r"\]\((?!https?:)", f"]({_REPOSITORY}/v{version}/", text) + "\n"


def dated(changelog: str, version: Version, date: str) -> str:
    """The changelog of that release: what was under [Unreleased] is the version's, which has a date."""
    found = sections(changelog)
    unreleased = next((section for section in found if section.version == UNRELEASED), Section(UNRELEASED, None, ""))
    own = next((section for section in found if section.version == version), Section(version, None, ""))
    older = [section for section in found if section not in (unreleased, own)]
    if not unreleased.text.strip() and not own.text.strip():
        raise ReleaseError(f"CHANGELOG.md has no entries for {version}")
    title = changelog[: match.start()] if (match := _VERSION.search(changelog)) else changelog
    texts = [f"## [{UNRELEASED}]\n", f"## [{version}] - {date}\n\n{_merged(own, unreleased)}\n"]
    texts += [f"## [{each.version}]{f' - {each.date}' if each.date else ''}\n\n{each.text.strip()}\n" for each in older]
    return title + "\n".join(texts)


def _merged(own: Section, unreleased: Section) -> str:
    """The entries of both, heading by heading, in the order of HEADINGS."""
    first, second = entries(own), entries(unreleased)
    texts = []
    for heading in ("", *HEADINGS):
        both = [text for text in (first.pop(heading, ""), second.pop(heading, "")) if text]
        separator = "\n" if all(text.startswith("- ") for text in both) else "\n\n"
        texts += [f"### {heading}\n\n{separator.join(both)}" if heading else "\n\n".join(both)] if both else []
    if unknown := {*first, *second}:
        raise ReleaseError(f"CHANGELOG.md: there is no heading {min(unknown)!r}; headings are {', '.join(HEADINGS)}")
    return "\n\n".join(texts)
