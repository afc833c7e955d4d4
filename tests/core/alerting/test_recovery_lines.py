"""What a message says of the jobs of a failover, and of what came back."""

from msgspec.structs import replace

from sidecar.core.policy.policy import Rule, Severity, Source
from sidecar.core.policy.triggers import Trigger
from tests.core.cluster.pictures import after, before, job, shows
from tests.kit.cluster import B
from tests.kit.core_sidecar import BY_ALERT, LEADER_CHANGED, POLICY, Sidecar, fail_over, watching

RECOVERED = Rule("FlinkRecovered", Trigger.RECOVERED, Severity.INFO)
NOT_RECOVERED = Rule("FlinkNotRecovered", Trigger.NOT_RECOVERED, Severity.CRITICAL, hold_for=20_000_000)
RULES = (LEADER_CHANGED, RECOVERED, NOT_RECOVERED)
LARGE = "b" * 32


def failed_over() -> Sidecar:
    """Two jobs, the larger one without checkpoints; B leads."""
    flink, sidecar = watching(
        policy=replace(POLICY, rules=RULES, route=BY_ALERT.route, evidence=frozenset({Source.FLINK_REST}))
    )
    shows(sidecar, before(sidecar), replace(job("sales\x1b[2J", job_id=LARGE), total_tasks=12))
    sidecar.waits(1)
    fail_over(flink, sidecar).waits(0.5)
    return sidecar


def looks(sidecar: Sidecar, state: str, seconds: int) -> None:
    for _ in range(seconds):
        shows(sidecar, after(sidecar, 41, 42), job("sales", job_id=LARGE, started=2, state=state))
        sidecar.waits(1)


def test_the_first_message_says_what_was_affected_and_what_runs_by_then() -> None:
    """The largest job by its tasks, its name without what acts on a terminal."""
    sidecar = failed_over()
    looks(sidecar, "RESTARTING", 8)
    lines = sidecar.sent[0].body.split("\n")
    assert (
        "2 jobs ran before on 2 TaskManagers: the largest is sales\N{REPLACEMENT CHARACTER}[2J with 12 tasks" in lines
    )
    assert "1 of 2 jobs seen running again, or ended, so far" in lines
    assert ("recovery", "still being assessed") in sidecar.sent[0].facts


def test_the_first_message_says_what_the_jobs_had() -> None:
    """Slots, and the last checkpoint of the largest job with its size."""
    flink, sidecar = watching(
        policy=replace(POLICY, rules=RULES, route=BY_ALERT.route, evidence=frozenset({Source.FLINK_REST}))
    )
    one = before(sidecar)
    assert one.checkpoints
    done = tuple(replace(checkpoint, size=3 << 29) for checkpoint in one.checkpoints.completed)
    shows(sidecar, replace(one, checkpoints=replace(one.checkpoints, completed=done)), slots_total=8, slots_free=5)
    sidecar.waits(1)
    fail_over(flink, sidecar).waits(8)
    assert (
        "1 job ran before on 2 TaskManagers (3 of 8 slots taken): orders with 2 tasks, last checkpoint 41 (1.5 GiB), 2 s before the loss"
        in sidecar.sent[0].body.split("\n")
    )


def test_the_all_clear_says_that_it_took_a_while() -> None:
    """And that not all is proven: the larger job's checkpoints were never read."""
    sidecar = failed_over()
    looks(sidecar, "RESTARTING", 30)
    looks(sidecar, "RUNNING", 80)
    fired, resolved = [sent for sent in sidecar.sent if sent.alert == "FlinkNotRecovered"]
    assert fired.title == "[NOT_RUNNING] default: 1 of 2 jobs run"
    assert resolved.body.startswith("all jobs run, or are not waited for")
    (line,) = [line for line in fired.body.split("\n") if line.startswith("1 job not seen running since")]
    assert line.endswith(": sales\N{REPLACEMENT CHARACTER}[2J")
    assert resolved.title == "[OK] default: 2 of 2 jobs run again, at least 32 s after jm-a was lost"
    assert "ran before" not in resolved.body


def test_the_proof_is_in_the_message_about_the_end() -> None:
    """With the time and the checkpoints."""
    flink, sidecar = watching(
        policy=replace(POLICY, rules=RULES, route=BY_ALERT.route, evidence=frozenset({Source.FLINK_REST}))
    )
    shows(sidecar, before(sidecar))
    sidecar.sees(flink.vacate().elect(B)).waits(0.5)
    for _ in range(20):
        shows(sidecar, after(sidecar, 41, 42))
        sidecar.waits(1)
    (recovered,) = [sent for sent in sidecar.sent if sent.alert == "FlinkRecovered"]
    assert recovered.title == "[OK] default: 1 of 1 jobs run again, at least 0.1 s after jm-a was lost"
    assert "recovered: 1 of 1 jobs RUNNING after 0.1 s, 1 restored from its latest checkpoint" in recovered.body
    assert ("recovery", "recovered") in recovered.facts
