"""Why there is no leader, in Kubernetes: the fact from which that was derived."""

from enum import StrEnum

from msgspec import Struct

from sidecar.core.moment import SECOND


class VacancyReason(StrEnum):
    """One fact each; the value is how records put it."""

    REMOVED = "the address was removed"
    CLEARED = "another holder, the old address removed"
    """It is not known who removed it: takeover and removal were observed together."""
    CONFIG_MAP_GONE = "the ConfigMap is gone"
    MADE_ANEW = "the ConfigMap was deleted and made anew"
    NOTHING_WRITTEN = "no address is written"
    RELEASED = "the lease was released"
    NO_LEASE = "nobody holds a lease"
    ANOTHER_HOLDER = "another holder, the old address still there"
    TAKEN_ANEW = "the same holder took the lease anew, the old address still there"
    LEFT = "left by an earlier leader"
    NOT_RENEWED = "the lease was not renewed for"
    """Followed by how long."""
    LAPSED_BEFORE = "the lease had run out and was not renewed since"


class Vacancy(Struct, frozen=True):
    """A reason; with NOT_RENEWED, for how long the lease was not renewed (microseconds)."""

    reason: VacancyReason
    not_renewed_for: int | None = None

    def __str__(self) -> str:
        return self.reason if self.not_renewed_for is None else f"{self.reason} {self.not_renewed_for / SECOND:.1f} s"
