"""What is due for notification now: groups are flushed, and the messages about them are queued."""

from collections.abc import Collection, Mapping
from itertools import chain

from msgspec.structs import replace

from sidecar.core.alerting import flushing
from sidecar.core.alerting.alerts import Alerts, Group, Suppressed
from sidecar.core.alerting.silences import Documents
from sidecar.core.cluster.failover import failover_in_progress
from sidecar.core.cluster.state import ClusterState
from sidecar.core.cluster.status import ends_incident
from sidecar.core.delivery import new_deliveries
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy
from sidecar.core.quarantine import Quarantine

Due = tuple[Alerts, list[Delivery], list[Suppressed]]


def due(
    policy: Policy,
    alerts: Alerts,
    clusters: Mapping[str, ClusterState],
    blind: Collection[str],
    documents: Documents,
    quarantine: Quarantine,
    now: Moment,
) -> Due:
    """The alerts after what is due was notified, its deliveries, and the alerts that were suppressed.

    Alerts that cannot be notified are forgotten, so that the rest of their group is: a condition that still holds fires anew.
    """

    decided_at = failover_in_progress.decided_at(clusters.values())
    unsettled = {
        name
        for name, cluster in (clusters.items() if alerts.groups else ())
        if cluster.stated and not ends_incident(cluster.stated, now)
    }
    settled = {name: cluster for name, cluster in clusters.items() if name not in unsettled} if alerts.groups else {}
    ending = failover_in_progress.planned_ends(settled, now)

    def deliver(part: Alerts) -> Due:
        after, notices, suppressed = flushing.flush(part, policy, blind, now, documents, decided_at, unsettled, ending)
        deliveries = (new_deliveries.of_notice(policy, clusters, notice, now) for notice in notices)
        return after, [*chain.from_iterable(deliveries)], suppressed

    try:
        return deliver(alerts)
    except Exception:  # noqa: BLE001  whatever it is, only its own alerts are left out
        groups: dict[str, Group] = {}
        for fingerprint, group in alerts.groups.items():
            members = {}
            for key, member in group.members.items():
                with quarantine.guard("alert", member.alert.rule, "of cluster", member.alert.cluster_id) as guard:
                    deliver(replace(alerts, groups={fingerprint: replace(group, members={key: member})}))
                if not guard.raised:
                    members[key] = member
            rest = group if len(members) == len(group.members) else replace(group, members=members)
            with quarantine.guard("group", fingerprint) as guard:
                deliver(replace(alerts, groups={fingerprint: rest}))
            if not guard.raised:
                groups[fingerprint] = rest
        return deliver(replace(alerts, groups=groups))
