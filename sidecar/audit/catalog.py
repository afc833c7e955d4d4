"""What a query can name, and what it is about, without Spark."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, get_args

from sidecar.audit.schema import BASE_VIEWS, table_of
from sidecar.audit.views import ANSWERS, answer
from sidecar.core.records import AnyRecord

_FIRST_SENTENCE: Final = re.compile(r".*?[.?](?=\s|$)")


class Named(NamedTuple):
    """A table, or a view that answers a question."""

    name: str
    kind: str
    about: str


def catalog() -> Sequence[Named]:
    """All tables, then all views."""
    about = {table_of(str(record.__struct_config__.tag)): record.__doc__ or "" for record in get_args(AnyRecord)}
    about["quarantine"] = "Lines of the spool that are not records, and why."
    return [
        *(Named(name, "table", _first_sentence(about[name])) for name in BASE_VIEWS),
        *(Named(name, "view", _first_sentence(answer(name).removeprefix("--"))) for name in ANSWERS),
    ]


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    found = _FIRST_SENTENCE.match(line)
    return found[0] if found else line
