"""`python -m tests.kit.bounds`: writes the table of bounds into docs/how-to/security.md, whose rows are those of `sidecar.core.bounds`."""

from typing import Final

from sidecar.core import bounds
from tests import ROOT

PAGE: Final = ROOT / "docs" / "how-to" / "security.md"
_BEGIN: Final = "<!-- python -m tests.kit.bounds -->\n"
_END: Final = "<!-- end of the table -->\n"


def written(page: str) -> str:
    """The page with today's table."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{bounds.markdown()}\n\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
