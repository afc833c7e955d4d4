"""`make version VERSION=…` and `make release VERSION=…`: docs/project/releasing.md."""

import argparse
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from scripts.release import changelog, version
from scripts.release.build import IMAGES, build
from scripts.release.version import RELEASE, ReleaseError

_ROOT: Final = Path(__file__).parents[2]


def _set(wanted: str) -> str:
    """Write the version to all places that name it, and, for a release, its date to the changelog."""
    number = version.parsed(wanted)
    file = _ROOT / "CHANGELOG.md"
    if RELEASE.fullmatch(number):
        text = changelog.dated(file.read_text(encoding="utf-8"), number, f"{datetime.now(UTC):%Y-%m-%d}")
        file.write_text(text, encoding="utf-8")
    changed = version.write(_ROOT, number)
    return f"this tree is {number} now ({len(changed)} files changed): look at the differences, and commit"


def main() -> int:
    """The exit status: 2, with one line, where there cannot be such a release."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("what", choices=("version", "release"))
    parser.add_argument("version")
    parser.add_argument("--images", default=" ".join(IMAGES), help="which images, none where it is empty")
    parser.add_argument("--build-options", default="", help="more options of the image build")
    given = parser.parse_args()
    try:
        if given.what == "version":
            print(_set(given.version))  # noqa: T201  a command says what it has done
        else:
            options = shlex.split(given.build_options)
            print(build(_ROOT, given.version, given.images.split(), options))  # noqa: T201
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
