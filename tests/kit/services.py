"""docs/reference/apprise-services.md, made from Apprise's plugins and from the answers that the code knows.

`python -m tests.kit.services` writes it; a test holds it to the code.
"""

import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from sidecar.sinks.notify.refusals import SERVICES, ServiceAnswer
from tests import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "apprise-services.md"
DESCRIBED: Final = ROOT / "docs" / "reference" / "services.md"
"""The page of those that are tested."""
_BEGIN: Final = """\
# All services of Apprise

Made from the code by `python -m tests.kit.services`. [Services](services.md) has those that are tested, and what a refusal is.

## What they accept with

The first of these fields that an answer has decides; any other value is a refusal. Of a list (`*`) every item has to accept.
The last column: values of too many messages.

| scheme | accepts with | comes back later with |
|---|---|---|
"""
_REST: Final = """
## All other services

Each message is sent by itself, as plain text, the all-clear too; outcomes are read from HTTP and SMTP answers as for the others.
Nothing more is tested. `github` opens an issue for each message.

"""
_LOAD_SECONDS = 60.0


def schemes() -> list[str]:
    """All that Apprise's plugins declare. In a process of its own: loading them takes 44 MiB."""
    code = "from apprise import plugins; plugins.N_MGR.load_modules(); print(*plugins.N_MGR.schemas())"
    program = [sys.executable, "-I", "-W", "ignore", "-c", code]
    return subprocess.check_output(program, text=True, timeout=_LOAD_SECONDS).split()


def described() -> list[str]:
    """The schemes in the first cells of the page of those that are tested."""
    cells = re.findall(r"^\| (`[^|]*) \|", DESCRIBED.read_text(encoding="utf-8"), re.MULTILINE)
    return [scheme for cell in cells for scheme in re.findall(r"`([a-z0-9]+)`", cell)]


def page() -> str:
    """The whole page."""
    others = ", ".join(f"`{scheme}`" for scheme in sorted({*schemes()} - {*described()}))
    return _BEGIN + "".join(_answers()) + _REST + textwrap.fill(others, 160) + "\n"


def _answers() -> Iterator[str]:
    grouped = defaultdict[tuple[str, str], list[str]](list)
    for scheme, answer in SERVICES.items():
        grouped[_accepted(answer), ", ".join(f"`{value}`" for value in answer.later)].append(f"`{scheme}`")
    for (accepted, later), names in grouped.items():
        yield f"| {', '.join(names)} | {accepted} | {later} |\n"


def _accepted(answer: ServiceAnswer) -> str:
    if answer.text:
        return f"the text `{answer.text}`"
    return "; else ".join(
        f"`{path}`: {' or '.join('anything' if value == '*' else f'`{value}`' for value in values) or 'no value'}"
        for path, values in answer.fields.items()
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
