"""The page of a mail as a mail program shows it: it decides on light or dark, and on the width."""

from pathlib import Path
from typing import Final

SCHEMES: Final = ("light", "dark")


def mail_program(folder: Path, scheme: str, mail: str) -> Path:
    """A page around the mail, with the background and the colours that `scheme` has in a browser."""
    page = folder / f"{scheme}.html"
    style = f":root {{ color-scheme: {scheme} }} body {{ margin: 16px }}"
    viewport = '<meta name="viewport" content="width=device-width">'
    page.write_text(
        f'<!doctype html><html data-drawn="all"><meta charset="utf-8">{viewport}<style>{style}</style>{mail}</html>'
    )
    return page
