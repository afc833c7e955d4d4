"""Draws the pages in Chromium: `python -m tests.screenshots.page FOLDER`.

The day they show is simulated, because a real one takes a day: the core observes two clusters whose JobManagers fail, and a store that is
out of reach for a while. Server, journal and browser are the real ones.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.triggers import Trigger
from sidecar.core.records import AnyRecord
from sidecar.core.state import State
from sidecar.core.views.snapshot import Snapshot
from tests.core.alerting.test_silences import SILENCED
from tests.kit.browser import chromium
from tests.kit.cluster import CLUSTER, THE_JOB, A, B, JobManager
from tests.kit.core_sidecar import OPS, POLICY, Sidecar, watching
from tests.kit.outcomes import oom_with_a_lost_job
from tests.shell.remembering import remember
from tests.shell.site import Site, captured

_HOUR: Final = 3600.0
_LATCH: Final = "/leader/latch"
_SHOWN: Final = ((390, "dark"), (1280, "light"))


def main(folder: Path) -> None:
    """Both pages, as a phone shows them in the dark and a desk in the light."""
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        sidecar = _day()
        site = Site(Path(place))
        try:
            first = sidecar.episodes()[0]
            remember(Path(place), sidecar, _renamed(sidecar, oom_with_a_lost_job(first)))
            site.now, site.snapshot = sidecar.moment, _snapshot(sidecar)
            for name, path, height in (("page", "/", 960), ("failover", f"/episodes/{first.id}", 1600)):
                for width, scheme in _SHOWN:
                    browser.visit(site.url(path), width, scheme)
                    file = folder / f"{name}-{scheme}-{width}.png"
                    file.write_bytes(browser.screenshot(height))
                    print(f"{file}: {file.stat().st_size} bytes, the page has {len(site.get(path)[1])}")
        finally:
            site.stop()


def _policy() -> Policy:
    flapping = Rule("FlinkLeaderFlapping", Trigger.EPISODES, Severity.CRITICAL, count=3, within=6 * 3600 * SECOND)
    return replace(SILENCED, rules=(*POLICY.rules, flapping), receivers={"ops": (replace(OPS, service="slack"),)})


def _day() -> Sidecar:
    """Twenty hours with three failovers and a quarter of an hour without the store; in the end nobody leads for 43 s."""
    flink, sidecar = watching(policy=_policy())

    def fails_over(to: JobManager, seconds: float) -> None:
        sidecar.sees(flink.vacate()).waits(seconds)
        sidecar.sees(flink.elect(to)).waits(20)

    sidecar.waits(5 * _HOUR, tick=30)
    fails_over(B, 4)
    sidecar.waits(6 * _HOUR, tick=30).is_cut_off().waits(900, tick=30).connects()
    sidecar.waits(4 * _HOUR, tick=30)
    fails_over(A, 1200)
    sidecar.waits(4.5 * _HOUR, tick=30)
    fails_over(B, 2)
    sidecar.waits(600, tick=5)
    flink.vacate()
    return sidecar.sees_changes().waits(43)


def _renamed(sidecar: Sidecar, outcome: Sequence[AnyRecord]) -> list[AnyRecord]:
    """The day of the cluster `orders`, with its job's name, and what became of a failover."""
    job = captured(sidecar, kind="job", subject=THE_JOB.job_id, attributes={"name": "Enrich orders"}, file=None)
    return [replace(record, cluster_id="orders") for record in (*sidecar.records, job, *outcome)]


def _snapshot(sidecar: Sidecar) -> Snapshot:
    """`orders` as it is in the end, and `payments`, which is well."""
    alerts = sidecar.state.alerts
    groups = {
        key: replace(
            group,
            members={
                name: replace(
                    member,
                    alert=replace(
                        member.alert, cluster_id="orders", labels=member.alert.labels | {"cluster_id": "orders"}
                    ),
                )
                for name, member in group.members.items()
            },
        )
        for key, group in alerts.groups.items()
    }
    orders = replace(sidecar.state.clusters[CLUSTER], contenders={_LATCH: ()})
    _, other = watching()
    payments = replace(other.state.clusters[CLUSTER], contenders={_LATCH: ("a", "b")})
    state = State({"orders": orders, "payments": payments}, alerts=replace(alerts, groups=groups, pending={}))
    return Snapshot(sidecar.moment, state, policy=sidecar.policy)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
