"""Which failovers count as planned, in which order of facts and how close in time; and that nothing else is hidden."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.cluster.status import Status
from sidecar.core.failover import plans
from sidecar.core.failover.plans import AFTER, BEFORE, LATE, MOST_DISRUPTIONS, UNREAD, Intent, Plan
from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.moment import SECOND, Moment, parsed
from sidecar.core.observations import ClusterFound, DeploymentObserved, DeploymentUnreadable, PodDisrupted
from sidecar.core.policy.policy import PLANNED_BUDGET, Policy, Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.core.cluster.test_removal import Finder, finder, withdraw
from tests.kit.cluster import CLUSTER, THE_JOB, B, JobManager, job_manager
from tests.kit.core_sidecar import KUBERNETES, LeaseSidecar, leased, the_episode
from tests.kit.fake_flink import Flink
from tests.kit.flink_operator import Operator
from tests.kit.groups import examples

INFO = Rule("FlinkPlannedFailover", Trigger.PLANNED_FAILOVER, Severity.INFO)
PLANNED = replace(KUBERNETES, rules=(*KUBERNETES.rules, INFO))
BUDGET = PLANNED_BUDGET // SECOND
C = job_manager("jm-c")
QUIETLY = [("FlinkPlannedFailover", "FIRST")]
LOUDLY = [("FlinkLeaderChanged", "FIRST")]


def operated(policy: Policy = PLANNED) -> tuple[Flink, LeaseSidecar, Operator]:
    """A cluster with a stable FlinkDeployment, and a sidecar that has been watching both for a minute."""
    flink, sidecar = leased(policy=policy)
    return flink, sidecar, operator_of(sidecar)


def operator_of(sidecar: LeaseSidecar) -> Operator:
    def report(deployment: FlinkDeployment | None) -> None:
        sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, deployment))

    return Operator(report, lambda: sidecar.moment.wall).reports()


def ends(flink: Flink, sidecar: LeaseSidecar) -> None:
    """The JobManagers shut down in order."""
    sidecar.sees(flink.vacate())


def leads(flink: Flink, sidecar: LeaseSidecar, leader: JobManager = B, settles: float = 10) -> None:
    sidecar.sees(flink.grant(leader).publish_all(leader)).watches(settles)


def upgrade(flink: Flink, sidecar: LeaseSidecar, operator: Operator, lag: float = 4, gone_for: float = 20) -> None:
    """As the operator does it: UPGRADING is written `lag` seconds after the leader has left."""
    operator.is_changed()
    sidecar.waits(2)
    ends(flink, sidecar)
    sidecar.waits(lag)
    operator.upgrades()
    sidecar.waits(1)
    operator.deploys()
    sidecar.waits(gone_for)
    leads(flink, sidecar)


# -- upgrades ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 4, 40])
def test_an_upgrade_within_its_budget_is_one_info_at_its_end(lag: float) -> None:
    """Also if the operator says what it does only after the rule's `for` has passed: the spec had changed before."""
    flink, sidecar, operator = operated()
    upgrade(flink, sidecar, operator, lag)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.confidence, episode.planned) == ("planned_upgrade", "high", True)
    assert "upgrading the FlinkDeployment" in episode.facts[0]
    assert sidecar.sent_reasons() == QUIETLY
    assert [delivery.severity for delivery in sidecar.sent] == [Severity.INFO]
    assert sidecar.state.alerts.pending == {}


def test_an_upgrade_beyond_its_budget_pages_once() -> None:
    """The new version does not come up: no leader for longer than five minutes."""
    flink, sidecar, operator = operated()
    upgrade(flink, sidecar, operator, gone_for=BUDGET - 10)
    assert sidecar.sent_reasons() == QUIETLY
    flink, sidecar, operator = operated()
    upgrade(flink, sidecar, operator, gone_for=BUDGET + 20)
    assert sidecar.sent_reasons()[0] == ("FlinkNoLeader", "FIRST")
    lost = parsed(the_episode(sidecar).opened_at)
    assert PLANNED_BUDGET <= sidecar.sent[0].queued_at.wall - lost <= PLANNED_BUDGET + 6 * SECOND
    assert [reason for alert, reason in sidecar.sent_reasons() if "FlinkNoLeader" in alert and reason == "FIRST"] == [
        "FIRST"
    ]


def test_the_label_is_fixed_when_the_alert_fires() -> None:
    """Routes may ask for it; what becomes known later does not move the alert to another group."""
    by_label = replace(PLANNED, route=replace(PLANNED.route, group_by=("cluster_id", "planned")))
    flink, sidecar, operator = operated(by_label)
    upgrade(flink, sidecar, operator, gone_for=BUDGET + 20)
    sidecar.watches(120)
    assert sidecar.sent_reasons()[0] == ("FlinkNoLeader", "FIRST")
    resolved = [reason for alert, reason in sidecar.sent_reasons() if "FlinkNoLeader" in alert]
    assert resolved == ["FIRST", "RESOLVED"]
    flink, sidecar, operator = operated(by_label)
    ends(flink, sidecar)
    sidecar.waits(45)
    [group] = [group for group in sidecar.state.alerts.groups.values() if group.members]
    assert "planned" not in group.labels
    operator.upgrades()
    sidecar.waits(60)
    assert ["planned" in group.labels for group in sidecar.state.alerts.groups.values() if group.members] == [False]


def test_without_a_budget_a_planned_failover_alerts_as_any_other_with_its_label() -> None:
    """For who routes by the label."""
    rules = tuple(replace(rule, planned_budget=0) for rule in KUBERNETES.rules)
    flink, sidecar, operator = operated(replace(PLANNED, rules=rules))
    upgrade(flink, sidecar, operator, gone_for=8)
    assert sidecar.sent_reasons() == LOUDLY


def test_a_missing_job_pages_when_the_budget_is_over() -> None:
    """All components lead again, the job does not."""
    flink, sidecar, operator = operated()
    operator.is_changed()
    ends(flink, sidecar)
    operator.upgrades()
    operator.deploys()
    sidecar.waits(20).sees(flink.grant(B).publish_all(B, *CLUSTER_COMPONENTS)).watches(BUDGET - 40)
    assert sidecar.sent_reasons() == []
    sidecar.watches(60)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    assert sidecar.component_state(THE_JOB).absence


def test_a_rollback_pages_and_says_so() -> None:
    """The new spec did not become stable: the operator ends its JobManagers."""
    flink, sidecar, operator = operated()
    upgrade(flink, sidecar, operator)
    sidecar.watches(200)
    sidecar.sent.clear()
    sidecar.records.clear()
    ends(flink, sidecar)
    sidecar.waits(3)
    operator.rolls_back()
    sidecar.waits(2)
    operator.has_rolled_back()
    sidecar.waits(10)
    leads(flink, sidecar, C)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.confidence, episode.planned) == ("rollback", "high", True)
    assert sidecar.sent_reasons()[0] == ("FlinkLeaderChanged", "FIRST")


def test_an_upgrade_that_is_rolled_back_before_a_leader_came_pages_at_once() -> None:
    """One failover: what began as an upgrade has failed."""
    flink, sidecar, operator = operated()
    operator.is_changed()
    ends(flink, sidecar)
    operator.upgrades()
    operator.deploys()
    sidecar.waits(200)
    assert sidecar.sent_reasons() == []
    operator.rolls_back()
    sidecar.waits(6)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    operator.has_rolled_back()
    leads(flink, sidecar)
    assert (the_episode(sidecar).cause, the_episode(sidecar).planned) == ("rollback", True)


# -- what is no excuse -------------------------------------------------------------------------------------------------


def test_an_unplanned_failover_is_known_to_be_one() -> None:
    """Its FlinkDeployment was read all the time, and nothing was meant to happen."""
    flink, sidecar, _ = operated()
    ends(flink, sidecar)
    sidecar.waits(2)
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is False
    assert sidecar.sent_reasons() == LOUDLY


def test_a_stale_upgrading_hides_nothing() -> None:
    """The operator has been stuck in it for longer than it may take."""
    flink, sidecar, operator = operated()
    operator.upgrades()
    sidecar.watches(BEFORE // SECOND + 10)
    ends(flink, sidecar)
    sidecar.waits(2)
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is False
    assert sidecar.sent_reasons() == LOUDLY


def test_a_crash_soon_after_an_upgrade_is_unplanned() -> None:
    """The new version crashes a minute later: the upgrade explains one loss."""
    flink, sidecar, operator = operated()
    upgrade(flink, sidecar, operator)
    sidecar.watches(60)
    sidecar.sent.clear()
    sidecar.records.clear()
    ends(flink, sidecar)
    leads(flink, sidecar, C)
    assert the_episode(sidecar).planned is False
    assert sidecar.sent_reasons() == LOUDLY


def test_an_upgrade_as_the_answer_to_a_crash_is_no_plan() -> None:
    """Somebody applies another spec half a minute after the leader was lost."""
    flink, sidecar, operator = operated()
    ends(flink, sidecar)
    sidecar.waits(25)
    operator.is_changed()
    operator.upgrades()
    operator.deploys()
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is False
    assert "FlinkLeaderChanged" in {alert for alert, _ in sidecar.sent_reasons()}


def test_a_crash_beside_a_change_that_deploys_nothing_is_notified_as_soon_as_that_is_known() -> None:
    """The change was processed, and the JobManagers were not what it was about."""
    flink, sidecar, operator = operated()
    operator.is_changed()
    ends(flink, sidecar)
    sidecar.waits(1)
    leads(flink, sidecar)
    assert sidecar.sent_reasons() == []
    operator.ignores()
    sidecar.waits(7)
    assert sidecar.sent_reasons() == LOUDLY


def test_a_change_that_the_operator_never_processes_delays_and_hides_nothing() -> None:
    """A spec that is refused, or an operator that does not run: the crash is notified after AFTER, even though it is over."""
    flink, sidecar, operator = operated()
    operator.is_changed()
    sidecar.waits(5)
    ends(flink, sidecar)
    sidecar.waits(2)
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is None
    sidecar.watches(AFTER // SECOND)
    assert sidecar.sent_reasons() == LOUDLY
    assert not sidecar.state.alerts.pending
    sidecar.sent.clear()
    sidecar.watches(BEFORE // SECOND)
    ends(flink, sidecar)
    leads(flink, sidecar, C)
    assert sidecar.sent_reasons() == LOUDLY


def test_what_waits_is_not_lost_when_the_sidecar_is_killed() -> None:
    """It is in the journal, and fires in the next process."""
    flink, sidecar, operator = operated()
    operator.is_changed()
    ends(flink, sidecar)
    sidecar.waits(2)
    leads(flink, sidecar)
    sidecar.is_killed(down_for=1).connects().watches(AFTER // SECOND + 10)
    assert sidecar.sent_reasons() == LOUDLY


def test_an_upgrade_while_nobody_can_read_it_is_unknown() -> None:
    """No permission any more: as without the reader."""
    flink, sidecar, _ = operated()
    sidecar.observe(DeploymentUnreadable(sidecar.moment, CLUSTER))
    ends(flink, sidecar)
    sidecar.waits(2)
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is None
    assert sidecar.sent_reasons() == LOUDLY


def test_without_a_flink_deployment_nothing_is_known() -> None:
    """A cluster that the operator does not know, or no reader at all."""
    flink, sidecar = leased(policy=PLANNED)
    sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, None))
    ends(flink, sidecar)
    sidecar.waits(2)
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is None
    assert sidecar.sent_reasons() == LOUDLY


# -- the sidecar that ends with the JobManager -------------------------------------------------------------------------


def unobserved(operator: Operator) -> FlinkDeployment:
    """The FlinkDeployment a few seconds later, when the operator has deployed the changed spec."""
    deployment = operator.deployment
    return replace(
        deployment,
        observed_generation=deployment.generation,
        reconciled_at=(deployment.reconciled_at or 0) + 3_610_000_000,
    )


@pytest.mark.parametrize("last_seen", ["the changed spec", "UPGRADING", "the loss of the leader"])
def test_the_sidecar_in_the_pod_ends_with_it_and_the_next_one_knows(last_seen: str) -> None:
    """One JobManager, a sidecar beside it: the rest of the upgrade happens while no sidecar runs. Without what was known of the
    FlinkDeployment it would page.
    """
    flink, sidecar, operator = operated()
    operator.is_changed()
    if last_seen == "UPGRADING":
        operator.upgrades()
    flink.vacate()
    if last_seen == "the loss of the leader":
        sidecar.sees_changes()
    deployed = unobserved(operator)
    sidecar.is_replaced(down_for=30)
    flink.grant(B).publish_all(B)
    sidecar.connects()
    sidecar.observe(DeploymentObserved(sidecar.moment, CLUSTER, deployed))
    sidecar.watches(20)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.planned) == ("planned_upgrade", True)
    assert sidecar.sent_reasons() == QUIETLY


def test_the_pod_is_drained_and_its_sidecar_ends_with_it() -> None:
    """Without the eviction, which nobody can read any more, the failover would page."""
    flink, sidecar = leased(job_manager("10.1.2.3"), policy=PLANNED)
    sidecar.observe(PodDisrupted(sidecar.moment, CLUSTER, "u-1", "orders-7d9f", "10.1.2.3", "node-7"))
    sidecar.is_replaced(down_for=30)
    flink.vacate().grant(B).publish_all(B)
    sidecar.connects().watches(20)
    assert (the_episode(sidecar).cause, the_episode(sidecar).planned) == ("node_drain", True)
    assert sidecar.sent_reasons() == QUIETLY


def test_a_cluster_that_starts_again_has_its_budget_with_the_next_sidecar_too() -> None:
    """Without the time since when it is wanted, that it has no leader yet would page."""
    flink, sidecar, operator = operated()
    operator.is_suspended()
    ends(flink, sidecar)
    operator.deploys()
    sidecar.waits(600, tick=10)
    operator.is_resumed()
    sidecar.is_replaced(down_for=3).connects().waits(60)
    operator.reports()
    sidecar.waits(20)
    assert sidecar.sent_reasons() == []


def test_the_next_one_may_read_the_deployment_before_what_was_handed_over() -> None:
    """The order of the two does not matter."""
    operation = plans.observed(None, FlinkDeployment("u", 1, 1, Reconciliation.DEPLOYED, 1), at(0))
    operation = plans.observed(operation, FlinkDeployment("u", 2, 1, Reconciliation.DEPLOYED, 1), at(10))
    handed = plans.unread(operation, at(11))
    after = plans.observed(handed, FlinkDeployment("u", 2, 2, Reconciliation.DEPLOYED, at(14).wall), at(40))
    assert after
    assert (after.plan, after.began, after.changed_at) == (plans.Plan.UPGRADE, at(14), None)
    assert plans.intent(after, at(12), unseen=False)


# -- suspended, deleted, drained ---------------------------------------------------------------------------------------


def test_a_suspended_cluster_pages_nobody_however_long_and_comes_back_as_an_election() -> None:
    """Without a leader for a day, because somebody wants it."""
    flink, sidecar, operator = operated()
    operator.is_suspended()
    ends(flink, sidecar)
    operator.deploys()
    sidecar.waits(24 * 3600, tick=60)
    assert sidecar.sent_reasons() == []
    operator.is_resumed()
    operator.upgrades()
    operator.deploys()
    sidecar.waits(30)
    leads(flink, sidecar)
    assert sidecar.sent_reasons() == QUIETLY
    episode = the_episode(sidecar)
    assert (episode.cause, episode.planned) == ("graceful_handover", True)
    assert "was suspended" in episode.facts[-1]


def test_a_cluster_that_does_not_come_back_pages_when_its_budget_is_over() -> None:
    """Counted from when it is wanted again."""
    flink, sidecar, operator = operated()
    operator.is_suspended()
    ends(flink, sidecar)
    sidecar.waits(3600, tick=60)
    operator.is_resumed()
    sidecar.waits(BUDGET - 10)
    assert sidecar.sent_reasons() == []
    sidecar.waits(20)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]


def test_an_alert_that_fires_is_resolved_when_nobody_wants_a_leader_any_more() -> None:
    """With words that do not speak of a leader that is back."""
    flink, sidecar, operator = operated()
    ends(flink, sidecar)
    sidecar.waits(60)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    operator.is_suspended()
    sidecar.waits(90)
    assert sidecar.sent_reasons()[1:] == [("FlinkNoLeader", "RESOLVED")]
    assert "no leader is wanted" in sidecar.sent[-1].body
    assert sidecar.sent[-1].title == "[STOPPED] default: its FlinkDeployment was suspended"


def test_suspended_is_believed_only_for_a_while_when_it_can_no_longer_be_read() -> None:
    """It may have been resumed."""
    flink, sidecar, operator = operated()
    operator.is_suspended()
    ends(flink, sidecar)
    sidecar.waits(60)
    sidecar.observe(DeploymentUnreadable(sidecar.moment, CLUSTER))
    sidecar.waits(UNREAD // SECOND - 60)
    assert sidecar.sent_reasons() == []
    sidecar.waits(120)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]


@pytest.mark.parametrize("is_found", [False, True])
def test_a_deleted_deployment_pages_nobody(*, is_found: bool) -> None:
    """A configured cluster stays without a leader, a found one is stopped and then retired, even if a leader was still published."""
    flink, sidecar = (
        finder(replace(PLANNED, stores={}, finds=PLANNED.stores[CLUSTER])) if is_found else leased(policy=PLANNED)
    )
    operator = operator_of(sidecar)
    operator.is_deleted()
    if isinstance(sidecar, Finder):
        flink.config_maps.delete()
        sidecar.sees_removal()
        sidecar.sees_changes().waits(60)
        stated = sidecar.state.clusters[CLUSTER].stated
        assert stated
        assert stated.status is Status.STOPPED
    else:
        ends(flink, sidecar)
    operator.is_gone()
    sidecar.waits(3600, tick=10)
    assert sidecar.sent_reasons() == (QUIETLY if is_found else [])  # as no rule says that it is stopped
    assert (CLUSTER in sidecar.state.clusters) is not is_found


def test_one_that_is_made_anew_is_an_election() -> None:
    """A configured cluster: deleted, and applied again an hour later."""
    flink, sidecar, operator = operated()
    operator.is_deleted()
    ends(flink, sidecar)
    operator.is_gone()
    sidecar.waits(3600, tick=10)
    operator.is_made_anew()
    operator.deploys()
    sidecar.waits(20)
    leads(flink, sidecar)
    assert sidecar.sent_reasons() == QUIETLY
    assert "was deleted" in the_episode(sidecar).facts[-1]


def test_a_cluster_that_outlives_its_deployment_is_on_its_own() -> None:
    """Deleted without its cluster: a crash an hour later is nobody's plan."""
    flink, sidecar, operator = operated()
    operator.is_gone()
    sidecar.watches(BEFORE // SECOND + 20)
    ends(flink, sidecar)
    leads(flink, sidecar)
    assert not the_episode(sidecar).planned
    assert sidecar.sent_reasons() == LOUDLY


def test_the_colour_of_a_blue_green_pair_that_is_removed_pages_nobody_and_names_the_pair() -> None:
    """The operator deletes the FlinkDeployment of the old colour."""
    flink, sidecar = finder(replace(PLANNED, stores={}, finds=PLANNED.stores[CLUSTER]))
    operator = operator_of(sidecar)
    operator.deployment = replace(operator.deployment, owner="orders")
    operator.reports().is_deleted()
    withdraw(flink, sidecar)
    flink.config_maps.delete()
    sidecar.sees_removal()
    operator.is_gone()
    sidecar.waits(600, tick=5)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.planned) == ("cluster_removed", True)
    assert episode.facts[-1].endswith("It is one colour of FlinkBlueGreenDeployment orders.")
    assert sidecar.sent_reasons() == QUIETLY
    assert sidecar.state.unclaimed == {}


def test_what_a_deployment_says_before_its_cluster_is_found_is_kept_for_it() -> None:
    """The two are read independently; and a cluster that is removed in an upgrade is found again."""
    policy = replace(PLANNED, stores={}, finds=PLANNED.stores[CLUSTER])
    _, sidecar = finder(policy)
    operator_of(sidecar)
    sidecar.sees_removal(on_purpose=True)
    assert CLUSTER in sidecar.state.unclaimed
    sidecar.observe(ClusterFound(sidecar.moment, CLUSTER))
    assert sidecar.state.unclaimed == {}
    assert sidecar.state.clusters[CLUSTER].operated


@pytest.mark.parametrize("known_by", ["address", "name"])
def test_a_pod_that_is_evicted_is_a_node_drain(known_by: str) -> None:
    """The pod's address, or its name in a host name of a StatefulSet, is the leader's."""
    leader, pod, address = (
        (job_manager("10.1.2.3"), "orders-7d9f", "10.1.2.3")
        if known_by == "address"
        else (job_manager("jm-0.jm.flink.svc"), "jm-0", "")
    )
    flink, sidecar = leased(leader, policy=PLANNED)
    sidecar.observe(PodDisrupted(sidecar.moment, CLUSTER, "u-1", pod, address, "node-7"))
    sidecar.waits(1)
    ends(flink, sidecar)
    sidecar.waits(2)
    leads(flink, sidecar)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.confidence, episode.planned) == ("node_drain", "high", True)
    assert "evicted from node node-7" in episode.facts[0]
    assert sidecar.sent_reasons() == QUIETLY


def test_a_pod_that_is_deleted_from_a_cordoned_node_was_probably_drained() -> None:
    """Nodes stay cordoned for weeks, and a pod may be deleted from one for another reason: planned, but not certain, and not evicted."""
    flink, sidecar = leased(job_manager("10.1.2.3"), policy=PLANNED)
    sidecar.observe(PodDisrupted(sidecar.moment, CLUSTER, "u-1", "orders-7d9f", "10.1.2.3", "node-7", evicted=False))
    ends(flink, sidecar)
    leads(flink, sidecar)
    episode = the_episode(sidecar)
    assert (episode.cause, episode.confidence, episode.planned) == ("node_drain", "medium", True)
    assert episode.facts[0].startswith("The leader's pod was deleted from node node-7, which is cordoned: ")


def test_a_pod_that_is_drained_after_it_failed_was_not_drained_for_it() -> None:
    """Somebody removes the broken node; and the pod of a StatefulSet that comes back under its name has its own failures."""
    leader = job_manager("jm-0.jm.flink.svc")
    flink, sidecar = leased(leader, policy=PLANNED)
    ends(flink, sidecar)
    sidecar.waits(LATE // SECOND + 1)
    sidecar.observe(PodDisrupted(sidecar.moment, CLUSTER, "u-1", "jm-0"))
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is None
    flink, sidecar = leased(leader, policy=PLANNED)
    sidecar.observe(PodDisrupted(sidecar.moment, CLUSTER, "u-1", "jm-0"))
    for term in (1, 2):
        ends(flink, sidecar)
        leads(flink, sidecar, job_manager("jm-0.jm.flink.svc", term))
    assert sidecar.episodes()[0].cause == "node_drain"
    assert [episode.planned for episode in sidecar.episodes()] == [True, None]


def test_a_suspension_as_the_answer_to_a_crash_is_no_plan() -> None:
    """It is no vacancy any more, but it was not meant to be one."""
    flink, sidecar, operator = operated()
    ends(flink, sidecar)
    sidecar.waits(20)
    operator.is_suspended()
    sidecar.waits(60)
    operator.is_resumed()
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is False
    assert sidecar.sent_reasons() == LOUDLY


def test_another_pod_that_is_evicted_explains_nothing() -> None:
    """The standby's."""
    flink, sidecar = leased(policy=PLANNED)
    sidecar.observe(PodDisrupted(sidecar.moment, CLUSTER, "u-1", "jm-z", "10.9.9.9", "node-7"))
    ends(flink, sidecar)
    leads(flink, sidecar)
    assert the_episode(sidecar).planned is None
    assert sidecar.sent_reasons() == LOUDLY


def test_disruptions_are_bounded() -> None:
    """Whoever may write pods writes many."""
    _, sidecar = leased(policy=PLANNED)
    for number in range(50):
        sidecar.observe(PodDisrupted(sidecar.moment, CLUSTER, f"u-{number}", f"p-{number}"))
    assert len(sidecar.state.clusters[CLUSTER].disruptions) == MOST_DISRUPTIONS


# -- properties --------------------------------------------------------------------------------------------------------


def at(seconds: float) -> Moment:
    return Moment(round(seconds * SECOND), 1_000_000 * SECOND + round(seconds * SECOND))


DEPLOYMENTS = st.builds(
    FlinkDeployment,
    uid=st.sampled_from(["u", "v"]),
    generation=st.integers(1, 4),
    observed_generation=st.none() | st.integers(1, 4),
    reconciliation=st.none() | st.sampled_from(Reconciliation),
    reconciled_at=st.none() | st.integers(0, at(5000).wall),
    suspended=st.booleans(),
    deleting=st.booleans(),
)
EVENTS = st.lists(st.tuples(st.integers(1, 400), st.just("lost") | st.none() | DEPLOYMENTS), max_size=12)


def played(events: list[tuple[int, object]]) -> tuple[plans.Operated | None, int]:
    operation, now = None, 0
    for wait, what in events:
        now += wait
        if what == "lost":
            operation = plans.unread(operation, at(now))
        else:
            operation = plans.observed(operation, what if isinstance(what, FlinkDeployment) else None, at(now))
    return operation, now


@settings(max_examples=examples(300))
@given(EVENTS, st.integers(0, 3000))
def test_whatever_was_observed_a_plan_is_near_the_loss_or_no_leader_is_wanted(
    events: list[tuple[int, object]], opened: int
) -> None:
    """No state of a FlinkDeployment, however stale, explains a loss that it does not touch."""
    operation, _ = played(events)
    intent = plans.intent(operation, at(opened), unseen=False)
    if intent is None:
        return
    assert operation
    assert intent.after <= AFTER
    if intent.plan in {plans.Plan.UPGRADE, plans.Plan.ROLLBACK}:
        assert intent.after >= -BEFORE
        assert operation.ended is None or at(opened).steady <= operation.ended.steady + LATE
    else:
        assert operation.unwanted_since


@settings(max_examples=examples(300))
@given(EVENTS)
def test_what_is_read_again_unchanged_is_the_same_object(events: list[tuple[int, object]]) -> None:
    """So that nothing is written to the journal for it."""
    operation, now = played(events)
    if operation and operation.deployment and not operation.unread_since:
        assert plans.observed(operation, operation.deployment, at(now + 1)) is operation


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("", "The FlinkDeployment was suspended: observed 2.0 s before the leader was lost."),
        ("Deployment jm", "Deployment jm was scaled to 0: observed 2.0 s before the leader was lost."),
        ("Job jm", "Job jm was suspended, or had finished: observed 2.0 s before the leader was lost."),
    ],
)
def test_a_suspension_is_named_after_what_makes_the_job_managers(subject: str, said: str) -> None:
    """A Job may also have finished."""
    assert str(Intent(Plan.SUSPENSION, -2 * SECOND, subject=subject)) == said
