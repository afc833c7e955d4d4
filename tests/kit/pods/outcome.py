"""One fault on a cluster of pods, and what came of it: messages, cause and bounds beside the truth, records, memory."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.kit.pods.api import Json
from tests.kit.pods.cluster import POD_SECONDS, FlinkPods, Pod
from tests.kit.pods.truth import Write
from tests.kit.waiting import PATIENCE_SECONDS, wait_for

QUIET_SECONDS: Final = 10.0
"""For how long nothing may follow the one message: longer than `group_interval` of the tests."""
MARGIN_SECONDS: Final = 1.0
"""By how much a bound may be wrong: a sidecar counts from when it observes a write, which is late on a machine that starts several JVMs."""
_NAMES: Final = {"resourcemanager": "resource_manager", "dispatcher": "dispatcher", "restserver": "rest_server"}
_RENEWALS: Final = 3
"""As many renewals of its lease a sidecar has to have observed, to know how often they come."""


@dataclass(frozen=True)
class Outcome:
    """What people were notified of in one failover, and what is known of it."""

    messages: list[str]
    """What arrived since the fault."""
    after_leader: float
    """Seconds from the new leader to the first message."""
    truth: float
    """Seconds without a working leader."""
    episode: Json
    """As the API has it."""
    unrecorded: list[str]
    """Components whose new leader is in no record that was kept."""
    peak: int
    """The most memory that a sidecar has used, in bytes."""

    @property
    def cause(self) -> str:
        return f"{self.episode['cause']} ({self.episode['confidence']})"

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        return self.episode["downtime_seconds_at_least"], self.episode["downtime_seconds_at_most"]

    @property
    def is_within_bounds(self) -> bool:
        """Whether the truth is; a bound that is not known is not wrong."""
        least, most = self.bounds
        at_least = least is None or least <= self.truth + MARGIN_SECONDS
        return at_least and (most is None or self.truth <= most + MARGIN_SECONDS)

    def row(self, scenario: str) -> str:
        """A line of the table in docs/project/pods.md."""
        least, most = ("?" if bound is None else f"{bound:.1f}" for bound in self.bounds)
        kept = f"without {', '.join(self.unrecorded)}" if self.unrecorded else "all"
        return (
            f"| {scenario} | {len(self.messages)} | {self.after_leader:.1f} s | {self.cause} | {self.truth:.1f} → {least} to {most} s "
            f"| {kept} | {self.peak / 2**20:.0f} MiB |"
        )


def observe(cluster: FlinkPods, fault: Callable[[Pod], object]) -> Outcome:
    """Do something to the leader's pod from which another leader follows, and wait until all is over."""
    await_renewals(cluster)
    before = [message.raw for message in cluster.messages]
    earlier_ids = {episode["id"] for episode in episodes(cluster)}
    old, leader = cluster.truth.now, cluster.leader()
    death = cluster.death(leader)
    cluster.peaks.clear()
    fault(leader)
    new = wait_for("another leader", lambda: cluster.truth.replaced_since(old), POD_SECONDS)
    wait_for("a message", lambda: len(cluster.messages) > len(before), POD_SECONDS)
    first = cluster.messages[len(before)]
    wait_for(
        "the end of the episode",
        lambda: any(_is_over(episode, earlier_ids) for episode in episodes(cluster)),
        POD_SECONDS,
    )
    await_settled(cluster)
    time.sleep(QUIET_SECONDS)  # whether nothing comes takes waiting
    (episode,) = (episode for episode in episodes(cluster) if episode["id"] not in earlier_ids)
    return Outcome(
        messages=[f"{message.title}\n{message.body}" for message in cluster.messages[len(before) :]],
        after_leader=first.at - new.at,
        truth=cluster.truth.vacancy(old, death.at),
        episode=episode,
        unrecorded=unrecorded(cluster, new),
        peak=max(cluster.peaks.values()),
    )


def await_renewals(cluster: FlinkPods) -> None:
    """Until the sidecars have seen how often the leader renews its lease, if there is one."""
    begun = time.time()
    if not cluster.form.zookeeper:
        wait_for(
            "renewals", lambda: sum(write.at > begun for write in cluster.truth.writes) >= _RENEWALS, PATIENCE_SECONDS
        )


def await_settled(cluster: FlinkPods) -> None:
    """Until all pods are there, and their sidecars know the leader and have nothing to send or to seal."""
    idle = ("flink_ha_outbox_pending 0.0", "flink_ha_spool_pending_records 0.0")

    def settled() -> bool:
        pods = cluster.pods()
        metrics = [cluster.get(pod, "/metrics") for pod in pods]
        return (
            len(pods) == cluster.form.jobmanagers
            and all(cluster.sees(pod, cluster.truth.now) for pod in pods)
            and all(line in text for line in idle for text in metrics)
        )

    wait_for(f"sidecars of {cluster.namespace} to settle", settled, POD_SECONDS)


def episodes(cluster: FlinkPods) -> list[Json]:
    """The episodes that any of the sidecars shows, each once; where it is over, as it is then."""
    latest: dict[str, Json] = {}
    for pod in cluster.pods():
        for episode in json.loads(cluster.get(pod, "/api/v1/episodes") or "[]"):
            if episode["phase"] == "CLOSED" or episode["id"] not in latest:
                latest[episode["id"]] = episode
    return [*latest.values()]


def unrecorded(cluster: FlinkPods, new: Write) -> list[str]:
    """The components whose leaders of `new` no kept record has."""
    recorded = {(record.get("component"), record.get("after_session_id")) for record in cluster.records()}
    return [name for key, name in _NAMES.items() if (name, new.sessions[key]) not in recorded]


def _is_over(episode: Json, earlier_ids: set[str]) -> bool:
    return episode["phase"] == "CLOSED" and episode["id"] not in earlier_ids
