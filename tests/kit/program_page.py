"""Mail, or a chat, as a program shows it that decides on light or dark, and on the width."""

from pathlib import Path
from typing import Final

SCHEMES: Final = ("light", "dark")


def in_a_program(folder: Path, scheme: str, content: str) -> Path:
    """A page around the content, with the background and the colours that `scheme` has in a browser."""
    page = folder / f"{scheme}.html"
    style = f":root {{ color-scheme: {scheme} }} body {{ margin: 16px }}"
    viewport = '<meta name="viewport" content="width=device-width">'
    page.write_text(
        f'<!doctype html><html data-drawn="all"><meta charset="utf-8">{viewport}<style>{style}</style>{content}</html>'
    )
    return page
