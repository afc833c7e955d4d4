"""The shipped rules, as the repository has them."""

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import Trigger
from sidecar.settings import load
from tests import ROOT

RULES = ROOT / "rules" / "default.yaml"


def test_the_shipped_rules_are_a_rule_file_like_any_other() -> None:
    """A copy of them in a configuration means the same as giving none."""
    rules = load(RULES, {"zookeeper": "zk"}).rules
    assert rules == (
        Rule("FlinkLeaderChanged", Trigger.LEADER_CHANGED, Severity.WARNING),
        Rule("FlinkJobLeaderChanged", Trigger.JOB_LEADER_CHANGED, Severity.INFO),
        Rule("FlinkPlannedFailover", Trigger.PLANNED_FAILOVER, Severity.INFO),
        Rule("FlinkStopped", Trigger.STOPPED, Severity.INFO),
        Rule("FlinkStoppedWithJobs", Trigger.JOBS_WAIT, Severity.WARNING, 1800 * SECOND),
        Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, 30 * SECOND),
        Rule("FlinkLeaderFlapping", Trigger.EPISODES, Severity.CRITICAL, count=3, within=3600 * SECOND),
        Rule("FlinkSplitLeadership", Trigger.SPLIT, Severity.CRITICAL),
        Rule("FlinkNoStandby", Trigger.NO_STANDBY, Severity.WARNING, 600 * SECOND),
        Rule("FlinkLeadersOutOfSight", Trigger.BLIND, Severity.WARNING, 120 * SECOND),
        Rule("FlinkZooKeeperZxidHeadroom", Trigger.ZXID_HEADROOM, Severity.WARNING),
        Rule("FlinkJobMissing", Trigger.JOB_MISSING, Severity.CRITICAL),
        Rule("FlinkJobResurrected", Trigger.JOB_RESURRECTED, Severity.CRITICAL),
        Rule("FlinkStateLost", Trigger.RESTORED_FROM_NOTHING, Severity.CRITICAL),
        Rule("FlinkStateOlder", Trigger.RESTORED_FROM_OLDER, Severity.WARNING),
        Rule("FlinkNotRecovered", Trigger.NOT_RECOVERED, Severity.CRITICAL, 300 * SECOND),
        Rule("FlinkLeaderSilent", Trigger.LEADER_SILENT, Severity.WARNING, 8 * SECOND),
    )
    copied, shipped = load(RULES, {"zookeeper": "zk"}), load(None, {"zookeeper": "zk"})
    assert (shipped.rules, shipped.inhibit_rules) == (copied.rules, copied.inhibit_rules)
    assert len(shipped.inhibit_rules) == 1
