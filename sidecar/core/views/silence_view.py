"""Silences as the page, the API and commands show them."""

from collections import Counter
from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from sidecar.core.alerting.active_silences import Silence, hiding
from sidecar.core.alerting.alerts import Group
from sidecar.core.alerting.silence_document import Written
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.policy.policy import Policy
from sidecar.core.state import State
from sidecar.core.views.snapshot import Snapshot


class SilenceView(Struct, frozen=True):
    """One silence. Its texts are as somebody wrote them."""

    id: str
    state: str
    """`active`, `pending` (it starts later) or `expired`."""
    matchers: Sequence[str]
    starts_at: Timestamp
    ends_at: Timestamp
    author: str
    comment: str
    clusters: Sequence[str]
    """The clusters in whose stores it is; `all-clusters`: all that are found."""
    hid: int | None
    """Alerts that it has hidden since this sidecar knows it. Null: a command found no records."""
    drill: str | None
    """What it expects, if it is a drill: it hides of the alerts that it matches only what a failover causes. Null: a silence."""
    hides: int | UnsetType = UNSET
    """Alerts that it hides now. Commands do not know it."""


def silences(snapshot: Snapshot) -> list[SilenceView]:
    """All silences that are known, active ones first, of these the one that ends next first."""
    by_id: dict[str, Silence] = {}
    clusters: dict[str, list[str]] = {}
    for name, document in sorted(snapshot.state.silences.items()):
        for key, silence in document.known.items():
            by_id[key] = silence
            clusters.setdefault(key, []).append(name)
    known = snapshot.policy, snapshot.state, snapshot.at
    hides, hid = hidden_now(*known), hidden(*known)
    views = [
        silence_view(silence, _state(silence, snapshot.at), clusters[key], hid[key], hides[key])
        for key, silence in by_id.items()
    ]
    return sorted(views, key=lambda view: (view.state != "active", view.ends_at, view.id))


def hidden(policy: Policy, state: State, at: Moment) -> Counter[str]:
    """By silence: how many alerts it has hidden, those that it hides now included."""
    hid = Counter[str]()
    for document in state.silences.values():
        hid.update({key: silence.hid for key, silence in document.known.items()})
    return hid | hidden_now(policy, state, at)


def hidden_now(policy: Policy, state: State, at: Moment) -> Counter[str]:
    """By silence: the alerts that fire and that it matches, as the alerts are shown; also before a notification of them is due."""
    firing = {member.alert.id: member for member in state.alerts.members() if member.alert.ended is None}
    return Counter(hiding(policy, state.silences, Group("", {}, firing), at).values())


def problems(snapshot: Snapshot) -> dict[str, str]:
    """By cluster: why its silences are not up to date."""
    return {name: document.problem for name, document in sorted(snapshot.state.silences.items()) if document.problem}


def silence_view(
    silence: Written, state: str, clusters: Sequence[str], hid: int | None, hides: int | UnsetType = UNSET
) -> SilenceView:
    """The silence as it is shown."""
    return SilenceView(
        silence.id,
        state,
        [*map(str, silence.matchers)],
        timestamp(silence.starts_at),
        timestamp(silence.over_at),
        silence.author,
        silence.comment,
        clusters,
        hid,
        silence.drill.value if silence.drill else None,
        hides,
    )


def _state(silence: Silence, at: Moment) -> str:
    if silence.is_over(at.wall) or at.steady >= silence.until:
        return "expired"
    return "active" if silence.is_active(at) else "pending"
