"""Each check over Flink's configuration: PASS on a good one, RISK with the fault, UNKNOWN where it cannot be read, or nothing at all."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.ha.finding import CheckVerdict, UnknownFact
from sidecar.core.ha.flink_checks import FLINK_CHECKS, OPTIONS, FlinkFacts
from sidecar.core.ha.results import CHECKS, KUBERNETES_CHECKS, results
from sidecar.core.ha.zookeeper_checks import ZOOKEEPER_CHECKS
from sidecar.core.pictures import Job, Picture, TaskManager
from tests.core.ha.test_zookeeper_checks import facts as zookeeper_facts
from tests.kit.deployed_flink import CLUSTER, job_manager
from tests.kit.deployed_flink import facts as kubernetes_facts
from tests.kit.hostile import texts

PASS, RISK, UNKNOWN = CheckVerdict.PASS, CheckVerdict.RISK, CheckVerdict.UNKNOWN
HIDDEN: Final = UnknownFact("Flink's configuration was not read")
GOOD: Final = {
    "storage_dir": "s3://bucket/flink/ha",
    "checkpoint_dir": "s3://bucket/flink/checkpoints",
    "tolerate": "true",
    "yarn_attempts": "4",
    "target": "yarn-application",
    "type": "zookeeper",
}
TOLERATE: Final = "high-availability.zookeeper.client.tolerate-suspended-connections"


def facts(**changes: Any) -> FlinkFacts:
    """Those of a good configuration."""
    return replace(FlinkFacts(options=GOOD, masters=2, contenders=2, picture=pictured()), **changes)


def pictured(*task_managers: str, jobs: int = 0) -> Picture:
    """What the REST server says; without arguments of one TaskManager and no job."""
    running = tuple(Job(f"{number:032x}", "count", "CREATED", 0, 0) for number in range(jobs))
    return Picture(0, "http://jm:8081", running, task_managers=tuple(map(TaskManager, task_managers or ("tm-0",))))


NO_TASK_MANAGER: Final = replace(pictured(), task_managers=())


def options(**changes: str | None) -> dict[str, dict[str, str]]:
    """`changes`: None removes an option."""
    return {"options": {name: value for name, value in (GOOD | changes).items() if value is not None}}


CASES: Final = [
    # check, what is changed, verdict (None: it does not apply), words
    ("storage_dir", {}, PASS, "high-availability.storageDir is in s3"),
    ("storage_dir", options(storage_dir="HDFS:///flink/ha"), PASS, "is in hdfs"),
    ("storage_dir", options(storage_dir=None), RISK, "high-availability.storageDir is not set"),
    ("storage_dir", options(storage_dir="file:///tmp/ha"), RISK, "is a folder of this machine: file:///tmp/ha"),
    ("storage_dir", options(storage_dir="/var/ha"), RISK, "is a folder of this machine: /var/ha"),
    ("storage_dir", {"options": HIDDEN}, UNKNOWN, "was not read"),
    ("storage_dir", options(storage_dir="file:/ha/x") | {"volumes": ("/ha",)}, PASS, "is on the volume at /ha"),
    ("checkpoint_dir", {}, PASS, "execution.checkpointing.dir is in s3"),
    ("checkpoint_dir", options(checkpoint_dir="file:///tmp/cp"), RISK, "is a folder of this machine: file:///tmp/cp"),
    ("checkpoint_dir", options(checkpoint_dir="/var/cp"), RISK, "is a folder of this machine: /var/cp"),
    ("checkpoint_dir", options(checkpoint_dir="file:///data/cp") | {"volumes": ("/data",)}, PASS, "volume at /data"),
    ("checkpoint_dir", options(checkpoint_dir="file:///data2/cp") | {"volumes": ("/data",)}, RISK, "this machine"),
    ("checkpoint_dir", options(checkpoint_dir=None), None, ""),
    ("checkpoint_dir", {"options": HIDDEN}, UNKNOWN, "was not read"),
    ("task_managers", {"picture": pictured("tm-0", "tm-1")}, PASS, "2 TaskManagers registered"),
    ("task_managers", {"picture": NO_TASK_MANAGER}, RISK, "no TaskManager is registered"),
    ("task_managers", {"picture": NO_TASK_MANAGER, "on_demand": True}, PASS, "Flink starts them on demand"),
    (
        "task_managers",
        {"picture": replace(pictured(jobs=3), task_managers=()), "on_demand": True},
        RISK,
        "no TaskManager is registered, and 3 jobs cannot run",
    ),
    ("task_managers", {"picture": replace(pictured(), task_managers=None)}, UNKNOWN, "did not say"),
    ("task_managers", {"picture": HIDDEN}, UNKNOWN, "was not read"),
    ("tolerate_suspended", {}, PASS, "leaders survive a lost connection to ZooKeeper until their session expires"),
    ("tolerate_suspended", options(tolerate="TRUE"), PASS, "leaders survive"),
    ("tolerate_suspended", options(tolerate="false"), RISK, f"{TOLERATE} is false"),
    ("tolerate_suspended", options(tolerate=None), RISK, f"{TOLERATE} is false"),
    ("tolerate_suspended", options(type="kubernetes"), None, ""),
    ("tolerate_suspended", {"options": HIDDEN}, UNKNOWN, "was not read"),
    ("yarn_attempts", {}, PASS, "yarn.application-attempts is 4"),
    ("yarn_attempts", options(yarn_attempts="1"), RISK, "yarn.application-attempts is 1"),
    ("yarn_attempts", options(yarn_attempts="1", target=None), RISK, "yarn.application-attempts is 1"),
    ("yarn_attempts", options(yarn_attempts=None), UNKNOWN, "yarn.application-attempts is not set"),
    ("yarn_attempts", options(yarn_attempts="many"), UNKNOWN, "yarn.application-attempts is no number: many"),
    ("yarn_attempts", options(yarn_attempts="9" * 5000), UNKNOWN, "yarn.application-attempts is no number: 999"),
    ("yarn_attempts", options(yarn_attempts=None, target=None), None, ""),
    ("yarn_attempts", options(yarn_attempts=None, target="remote"), None, ""),
    ("yarn_attempts", {"options": HIDDEN}, UNKNOWN, "was not read"),
    ("masters", {}, PASS, "the file masters lists 2 JobManagers, and 2 contend for leadership"),
    ("masters", {"masters": 3}, RISK, "the file masters lists 3 JobManagers, and 2 contend for leadership"),
    ("masters", {"contenders": 3}, RISK, "lists 2 JobManagers, and 3 contend"),
    ("masters", {"masters": None}, None, ""),
    ("masters", {"masters": HIDDEN}, UNKNOWN, "was not read"),
    ("masters", {"contenders": HIDDEN}, UNKNOWN, "was not read"),
]


@pytest.mark.parametrize(("check", "changes", "verdict", "words"), CASES)
def test_a_check_over_facts(check: str, changes: dict[str, Any], verdict: CheckVerdict | None, words: str) -> None:
    """The verdict, and what it rests on."""
    finding = FLINK_CHECKS[check](facts(**changes))
    if finding is None:
        assert verdict is None
        return
    assert (finding.verdict, words in finding.text) == (verdict, True), finding.text
    assert bool(finding.advice) == (verdict is RISK)


def test_each_check_has_all_verdicts() -> None:
    """None of them can only pass, and none passes where the fact is hidden. All but two concern some clusters only."""
    cases = {(check, verdict) for check, _, verdict, _ in CASES}
    assert {case for case in cases if case[1]} == {
        (check, verdict) for check in FLINK_CHECKS for verdict in CheckVerdict
    }
    assert {check for check, verdict in cases if verdict is None} == {*FLINK_CHECKS} - {"storage_dir", "task_managers"}


@given(
    st.dictionaries(st.sampled_from([*OPTIONS]), texts() | texts().map("http:{}".format)) | texts().map(UnknownFact),
    st.none() | st.integers(0, 10**6) | texts().map(UnknownFact),
    st.integers(0, 10**6) | texts().map(UnknownFact),
)
def test_texts_are_bounded_printable_lines(
    read: dict[str, str] | UnknownFact, masters: int | UnknownFact | None, contenders: int | UnknownFact
) -> None:
    """Whatever the configuration says; and no check fails over it."""
    checks = results(zookeeper_facts(), FlinkFacts(options=read, masters=masters, contenders=contenders))
    for result in checks:
        assert result.text.isprintable()
        assert result.advice.isprintable()
        assert max(len(result.text), len(result.advice)) <= 1001
        assert "the check failed" not in result.text


def test_in_kubernetes_pods_and_their_configmap_say_what_no_folder_does() -> None:
    """Where checkpoints are, whether a volume is there that outlives the pod, and whether Flink starts TaskManagers itself."""
    hidden, pod = facts(options=HIDDEN, picture=NO_TASK_MANAGER), job_manager("jm-0")
    plain = replace(pod, labels={"app": CLUSTER, "component": "jobmanager"})

    def found(**changes: Any) -> tuple[CheckVerdict, CheckVerdict]:
        by_check = {result.check: result.verdict for result in results(kubernetes_facts(**changes), hidden)}
        return by_check["checkpoint_dir"], by_check["task_managers"]

    local = {"state.checkpoints.dir": "file:///data/cp", "high-availability.storageDir": "s3://ha"}
    assert found(memory=local) == (RISK, PASS)
    assert found(memory=local, pods=(plain,)) == (RISK, RISK)
    assert found(memory=local, pods=(replace(pod, volumes=("/data",)),)) == (PASS, PASS)
    moved = replace(pod, properties={"state.checkpoints.dir": "s3://cp"})
    assert found(memory=local, pods=(moved,)) == (PASS, PASS)
    assert found(memory=HIDDEN) == (UNKNOWN, PASS)


def test_each_store_has_its_own_checks_and_flink_s() -> None:
    """By the names of the tables, in their order; no name means two checks of one cluster."""
    for store, checks in ((zookeeper_facts(), ZOOKEEPER_CHECKS), (kubernetes_facts(), KUBERNETES_CHECKS)):
        assert [result.check for result in results(store, facts())] == [*checks, *FLINK_CHECKS]
    assert {*CHECKS} == {*ZOOKEEPER_CHECKS, *KUBERNETES_CHECKS, *FLINK_CHECKS}


def test_a_check_that_raises_is_unknown_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours is no reason to say nothing of all else."""
    monkeypatch.setattr("sidecar.core.ha.results.FLINK_CHECKS", {**FLINK_CHECKS, "storage_dir": lambda _facts: 1 / 0})
    by_check = {result.check: result for result in results(zookeeper_facts(), facts())}
    assert by_check["storage_dir"].verdict is UNKNOWN
    assert by_check["storage_dir"].text == "the check failed: ZeroDivisionError; please report this bug"
    assert {result.verdict for name, result in by_check.items() if name != "storage_dir"} == {PASS}
