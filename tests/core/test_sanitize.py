"""Text from elsewhere, made fit to be shown."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.sanitize import escaped, printable


@given(st.text(max_size=200))
def test_escaped_json_is_the_same_json_and_printable(text: str) -> None:
    """Also beyond the basic plane, where JSON needs two escapes."""
    shown = escaped(json.dumps({text: [text]}, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == {text: [text]}


@given(st.text(max_size=400))
def test_a_printable_text_loses_nothing_but_what_cannot_be_printed(text: str) -> None:
    """Character by character, however long it is."""
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) == len(text)
    assert all(after in {before, "\N{REPLACEMENT CHARACTER}"} for before, after in zip(text, shown, strict=True))
