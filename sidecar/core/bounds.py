"""The table of bounds: how much each border lets in, and what happens beyond it.

A border is where something enters that others can write: a store's list or document, a REST server's, observer's or receiver's
answer, a child process. Beyond a bound the one that exceeds it is left out, and that is reported; its neighbours are not affected.
The modules at the borders take their limits from here, and docs/how-to/security.md shows this table: the bounds are fixed, not configured.
"""

from typing import Final

from msgspec import Struct

KIB: Final = 1 << 10
MIB: Final = 1 << 20


class Bound(Struct, frozen=True, kw_only=True):
    """One border's bounds. 0: that measure does not apply."""

    border: str
    """What enters, and from where: the first column of the page's table."""
    most_bytes: int = 0
    most_items: int = 0
    most_depth: int = 0
    most_seconds: float = 0.0
    total: str
    """What bounds all of this kind together."""
    beyond: str
    """What happens beyond it, and where it is reported."""


CONFIGURATION: Final = Bound(
    border="the configuration, a file of rules or of tests of rules",
    most_bytes=256 * KIB,
    most_items=20_000,
    most_depth=32,
    total="each file; what a YAML alias stands for counts each time",
    beyond="the file is refused",
)
FLINK_CONF: Final = Bound(
    border="Flink's configuration: a file, or a ConfigMap that holds it",
    most_bytes=MIB,
    most_items=50_000,
    most_depth=100,
    total="one for each cluster of the configuration",
    beyond="the configuration is refused; of a ConfigMap, `ha check` says what it did not read",
)
KUBECONFIG: Final = Bound(
    border="a kubeconfig",
    most_bytes=4 * MIB,
    most_items=20_000,
    most_depth=32,
    total="one for each cluster of the configuration",
    beyond="the configuration is refused",
)

BOUNDS: Final[tuple[Bound, ...]] = (CONFIGURATION, FLINK_CONF, KUBECONFIG)
"""Every border, in the order of the page. A test finds a `Bound` of this module that is missing here."""


def markdown() -> str:
    """The table for the page: one row a border."""
    rows = (
        f"| {bound.border} | {_size(bound.most_bytes)} | {_number(bound.most_items)} | {_number(bound.most_depth)} "
        f"| {_number(bound.most_seconds)} | {bound.total} | {bound.beyond} |"
        for bound in BOUNDS
    )
    head = ("| border | bytes | items | depth | seconds | all together | beyond it |", "|---|---|---|---|---|---|---|")
    return "\n".join((*head, *rows))


def _size(size: int) -> str:
    if not size:
        return ""
    return f"{size // MIB} MiB" if size % MIB == 0 else f"{size // KIB} KiB" if size % KIB == 0 else f"{size:,}"


def _number(number: float) -> str:
    return f"{number:,g}" if number < 1_000_000 and number else f"{number:,.0f}" if number else ""
