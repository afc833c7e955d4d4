"""The HTML pages. Importing this module loads jinja2.

All text from a cluster or a person is untrusted: it is made printable and bounded (`clean`) and escaped by the templates, and no page may
run or load anything (`POLICY`).
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sidecar import __version__
from sidecar.core.cluster.record_lines import lasted, move
from sidecar.core.flink.leadership import host_port
from sidecar.core.moment import SECOND, seconds, timestamp
from sidecar.core.pods import spelled
from sidecar.core.records import TransitionRecord
from sidecar.core.sanitize import clean, printable
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.explain import Explanation, facts
from sidecar.core.views.silence_view import problems, silences
from sidecar.core.views.snapshot import Snapshot
from sidecar.web.status import clusters, is_well

CLUSTERS_SHOWN: Final = 100
"""Clusters without a leader, or that cannot be read, come first."""
DELIVERIES_SHOWN: Final = 20
SILENCES_SHOWN: Final = 20
TRANSITIONS_SHOWN: Final = 100
"""Of the cluster's components."""
JOBS_SHOWN: Final = 20
"""Transitions of jobs."""
MESSAGES_SHOWN: Final = 50
EVIDENCE_SHOWN: Final = 50

_STYLE: Final = files("sidecar.web").joinpath("templates/page.css").read_text(encoding="utf-8")
POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)
"""The Content-Security-Policy of every page: its own style and nothing else."""


def status(snapshot: Snapshot, episodes: Sequence[EpisodeView], problem: str | None, stale: str | None) -> str:
    """The status page. `problem`: why earlier `episodes` are missing; `stale`: why the page is out of date."""
    outbox = list(snapshot.state.outbox.values())
    watched, finder = clusters(snapshot), snapshot.state.finder
    silenced = [each for each in silences(snapshot) if each.state != "expired"]
    return _render(
        "status.html.j2",
        at=timestamp(snapshot.at.wall),
        clusters=watched if len(watched) <= CLUSTERS_SHOWN else sorted(watched, key=is_well)[:CLUSTERS_SHOWN],
        watched=len(watched),
        finder=finder,
        episodes=episodes,
        problem=problem,
        stale=stale,
        health=snapshot.health,
        deliveries=outbox[:DELIVERIES_SHOWN],
        pending=len(outbox),
        silences=silenced[:SILENCES_SHOWN],
        silenced=len(silenced),
        unread_silences=problems(snapshot),
    )


def episode(explained: Explanation, failover: EpisodeView | None) -> str:
    """The page of one failover: explanation, notes, transitions, evidence and notifications."""
    return _render(
        "episode.html.j2",
        explained=explained,
        failover=failover,
        facts=list(facts(explained)),
        transitions=_shown(explained.transitions),
        messages=explained.notifications[:MESSAGES_SHOWN],
        jobs_shown=JOBS_SHOWN,
        evidence=explained.evidence[:EVIDENCE_SHOWN],
    )


def _shown(transitions: Sequence[TransitionRecord]) -> list[TransitionRecord]:
    """The first transitions of the cluster's components and the first of jobs, in order."""
    left = {True: JOBS_SHOWN, False: TRANSITIONS_SHOWN}
    shown = []
    for transition in transitions:
        of_job = transition.job_id is not None
        if left[of_job]:
            left[of_job] -= 1
            shown.append(transition)
    return shown


def _render(template: str, **values: object) -> str:
    return _templates.get_template(template).render(values)


def _utc(time: str) -> Markup:
    """A time as HTML, to the millisecond."""
    return Markup('<time datetime="{}">{} {}</time>').format(time, time[:10], time[11:23])


def _moved(failover: EpisodeView) -> str:
    """The previous and the next leader."""
    before, after = (
        spelled(failover.before_address, failover.before_pod),
        spelled(failover.after_address, failover.after_pod),
    )
    return move(before, after) if failover.after_address else f"{clean(before or '?')} → no leader yet"


def _downtime(of: EpisodeView | TransitionRecord) -> str:
    """How long there was no working leader."""
    if of.downtime_seconds_at_least is None:
        return "not known"
    return lasted(of.downtime_seconds_at_least, of.downtime_seconds_at_most)


_templates: Final = Environment(
    loader=PackageLoader("sidecar.web"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
    auto_reload=False,
)
_templates.filters |= {
    "clean": lambda text: clean(str(text)),
    "host": lambda address: clean(host_port(address)),
    "moved": _moved,
    "printable": printable,
    "utc": _utc,
    "downtime": _downtime,
    "lasted": lambda value: seconds(round(value * SECOND)),
    "wall": lambda moment: timestamp(moment.wall),
}
_templates.globals |= {"style": Markup(_STYLE), "version": __version__}  # noqa: S704  our own file
