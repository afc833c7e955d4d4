"""The figures at the top of the report, and what a reader must not miss."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from sidecar.audit.report.report_data import LANES, Findings, Stretch, Sums
from sidecar.audit.report.report_period import utc
from sidecar.audit.report.report_text import DASH, between, counted, minute, percent, seconds, short


class Tile(Struct, frozen=True):
    """One figure at the top of the page."""

    name: str
    value: str
    note: str
    tone: str = ""
    """`good`, `bad`, or neither."""


def tiles(findings: Findings) -> list[Tile]:
    """The figures above the pictures."""
    total, sums = findings.total, together(findings.available_by_cluster.values())
    observed = sums.led + sums.vacant
    unknown = total.n - total.planned - total.unplanned
    meant = [f"{total.planned:,} planned", f"{total.unplanned:,} not planned"] + [f"{unknown:,} not known"] * bool(
        unknown
    )
    drills = [f"{counted(total.drills, 'drill')} not counted"] * bool(total.drills)
    queued, delivered, gave_up = (
        sum(row[name] for row in findings.alerts.values()) for name in ("queued", "delivered", "gave_up")
    )
    return [
        Tile(
            "Failovers",
            f"{total.n:,}",
            ", ".join((meant if total.n else []) + drills),
        ),
        Tile("No published leader", seconds(total.vacant_total), _vacancy_note(total)),
        Tile("No working leader", _down_total(total), _down_note(total)),
        Tile(
            "Availability",
            percent(sums.led, observed),
            "the part of the observed time with a published leader",
            _tone(sums),
        ),
        Tile(
            "Unobserved", percent(sums.unobserved, observed + sums.unobserved), "of all time; not counted as available"
        ),
        Tile("Alerts delivered", f"{delivered:,} of {queued:,}", f"{gave_up:,} given up", "bad" if gave_up else ""),
    ]


def _tone(sums: Sums) -> str:
    return "good" if sums.led and not sums.vacant else ""


def _vacancy_note(total: Any) -> str:
    if total.vacant_longest is None:
        return "none measured"
    longest = total.vacant_longest
    where = f"{short(longest.cluster_id)}, {minute(utc(longest.at))}"
    return (
        f"all failovers together; median {seconds(total.vacant_median)}, longest {seconds(longest.seconds)} ({where})"
    )


def _down_total(total: Any) -> str:
    if total.down_total_at_least is None:
        return DASH
    most = None if total.without_down_bound else max(total.down_total_at_least, total.down_total_at_most)
    return between(total.down_total_at_least, most)


def _down_note(total: Any) -> str:
    if total.down_total_at_least is None:
        return "none measured"
    unknown = f"; no upper bound is known of {total.without_down_bound:,}" if total.without_down_bound else ""
    return f"all failovers together{unknown}"


def notices(findings: Findings) -> list[str]:
    """What a reader must not miss."""
    lasting: dict[str, list[Stretch]] = {}
    for stretch in findings.vacant:
        if stretch.lasts:
            lasting.setdefault(stretch.cluster_id, []).append(stretch)
    texts = []
    for cluster_id, stretches in lasting.items():
        own = sorted({stretch.component or "" for stretch in stretches if stretch.job_id is None})
        jobs = sum(stretch.job_id is not None for stretch in stretches)
        leaderless = ", ".join([*own, *([counted(jobs, "job")] if jobs else [])])
        since = minute(min(stretch.began for stretch in stretches))
        texts.append(f"{short(cluster_id)} has no leader at the end of this period: {leaderless}, since {since}.")
    if len(texts) > LANES:
        texts[LANES:] = [f"Nor have {len(texts) - LANES} more clusters."]
    if lost := findings.by_verdict.get("lost"):
        texts.append(f"{counted(lost.n, 'failover')} lost a job, or the state of one.")
    if unrecorded := sum(row.unrecorded for row in findings.changes.values()):
        texts.append(
            f"{counted(unrecorded, 'more failover')} began and {'is' if unrecorded == 1 else 'are'} in no figure of failovers:"
            " not over when the period ended, or the end was not recorded."
        )
    return texts


def together(sums: Iterable[Sums]) -> Sums:
    """The sums of all."""
    parts = [*sums]
    return Sums(
        sum(part.led for part in parts), sum(part.vacant for part in parts), sum(part.unobserved for part in parts)
    )
