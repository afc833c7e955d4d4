"""Evidence is captured of the processes of our own cluster: those of another one on the same machine are left alone."""

import os
from collections.abc import Callable
from pathlib import Path
from queue import Queue

import msgspec
import pytest

from sidecar.core.captures import Capture, CaptureOutcome, EvidenceItem, EvidenceKind, Occasion
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Source
from sidecar.host import ownership, processes
from sidecar.host.processes import FlinkProcess
from sidecar.settings import KubernetesSettings, ZooKeeperSettings
from sidecar.sinks.evidence import evidence_child
from sidecar.sinks.evidence.collector import Collector
from tests.sinks.running import Alive, Run

PRETENDER = "org.apache.flink.Pretender"
WAITS = """
import subprocess, sys, time
if "parent" in sys.argv:
    subprocess.Popen(["python", "-c", "import time; print('ready', flush=True); time.sleep(600)"], executable="/proc/self/exe")
else:
    print("ready", flush=True)
time.sleep(600)
"""
OURS = ownership.identity(ZooKeeperSettings("zk-1:2181,zk-2:2181", "/flink/orders", "orders", 60.0, 15.0, False))
IN_KUBERNETES = ownership.identity(KubernetesSettings("orders", "flink"))

Conf = Callable[..., Path]


@pytest.fixture
def conf(tmp_path: Path) -> Conf:
    """Writes a Flink's configuration; its folder."""

    def write(cluster_id: str = "/orders", quorum: str = "zk-2:2181", name: str = "config.yaml") -> Path:
        folder = tmp_path / f"conf-{len(list(tmp_path.glob('conf-*')))}"
        folder.mkdir()
        lines = {
            "high-availability.type": "zookeeper",
            "high-availability.cluster-id": cluster_id,
            "high-availability.zookeeper.quorum": quorum,
        }
        (folder / name).write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
        return folder

    return write


@pytest.fixture
def flink(python: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FlinkProcess]:
    """Starts what looks like a JVM of Flink, with these arguments; nothing else of Flink is visible but what it started."""
    find = processes.find
    mine: set[int] = set()
    monkeypatch.setattr(
        processes, "find", lambda ours: [process for process in find(ours) if {process.pid, process.works_for} & mine]
    )

    def start(*arguments: str) -> FlinkProcess:
        pid = python(WAITS, PRETENDER, *arguments, name=PRETENDER, argv0="java").pid
        mine.add(pid)
        [found] = [process for process in processes.find(set()) if process.pid == pid]
        return found

    return start


def captured(folder: Path, cluster: dict[str, str] | None = OURS) -> list[EvidenceItem]:
    return msgspec.convert(
        evidence_child.capture("processes", str(folder), "ep/opened", 30.0, cluster=cluster), list[EvidenceItem]
    )


def subjects(items: list[EvidenceItem]) -> set[str]:
    return {item.subject for item in items if item.subject != "other clusters"}


def test_another_clusters_process_is_left_alone(
    conf: Conf, flink: Callable[..., FlinkProcess], alive: Alive, tmp_path: Path
) -> None:
    """It is neither described nor signalled, and that it was left out is a record."""
    ours = flink("--configDir", str(conf()))
    other = flink("--configDir", str(conf("/billing")))
    items = captured(tmp_path)
    assert subjects(items) == {ours.subject}
    [left] = [item for item in items if item.subject == "other clusters"]
    assert (left.kind, left.outcome, left.detail) == (
        EvidenceKind.PROCESS,
        CaptureOutcome.ABSENT,
        "not captured: 1 of another cluster",
    )
    assert alive(other.pid)


def test_that_only_other_clusters_are_visible_is_recorded(
    conf: Conf, flink: Callable[..., FlinkProcess], tmp_path: Path
) -> None:
    """As when our own JobManager has ended by then."""
    flink("--configDir", str(conf("/billing")))
    [item] = captured(tmp_path)
    assert item.detail == "not captured: 1 of another cluster; none of this cluster is visible"


def test_a_python_of_another_clusters_jvm_is_not_captured(
    conf: Conf, flink: Callable[..., FlinkProcess], tmp_path: Path
) -> None:
    """A Python belongs to the cluster of the JVM that started it."""
    flink("--configDir", str(conf("/billing")), "parent")
    [item] = captured(tmp_path)
    assert item.detail == "not captured: 2 of another cluster; none of this cluster is visible"


def test_processes_of_unknown_owner_are_captured(flink: Callable[..., FlinkProcess], tmp_path: Path) -> None:
    """In a pod with one process namespace all of Flink is the pod's."""
    found = [flink(), flink("--configDir", "/no/such/folder")]
    assert subjects(captured(tmp_path)) == {each.subject for each in found}


def test_processes_of_unknown_owner_are_not_captured_beside_another_cluster(
    conf: Conf, flink: Callable[..., FlinkProcess], tmp_path: Path
) -> None:
    """It may be theirs."""
    ours, _, _ = flink("--configDir", str(conf())), flink(), flink("--configDir", str(conf("/billing")))
    items = captured(tmp_path)
    assert subjects(items) == {ours.subject}
    assert {item.detail for item in items if item.subject == "other clusters"} == {
        "not captured: 1 of another cluster, 1 of a cluster that cannot be determined"
    }


@pytest.mark.parametrize(
    ("arguments", "owner"),
    [
        (["--configDir", "{ours}"], "OURS"),
        (["--configDir={ours}"], "OURS"),
        (["-c", "{ours}"], "OURS"),
        (["-c", "com.example.Job"], "UNKNOWN"),
        (["--configDir", "{ours}", "-Dhigh-availability.cluster-id=/billing"], "OTHER"),
        (["--configDir", "{ours}", "-D", "high-availability.cluster-id=/billing"], "OTHER"),
        (["--configDir", "{other}", "-D", "high-availability.cluster-id=orders"], "OURS"),
        (["--configDir", "{elsewhere}"], "OTHER"),
        (["--configDir", "{without}"], "OTHER"),
        (["--configDir", "{broken}"], "UNKNOWN"),
        (["--configDir", "{legacy}"], "OURS"),
        (["-Dhigh-availability=kubernetes", "-Dkubernetes.cluster-id=orders"], "OTHER"),
        (["-Drest.port=1"], "UNKNOWN"),
    ],
)
def test_whose_a_process_is(
    arguments: list[str], owner: str, conf: Conf, flink: Callable[..., FlinkProcess], tmp_path: Path
) -> None:
    """By the configuration that it names and the dynamic properties that it was given."""
    (without, broken) = (tmp_path / "without", tmp_path / "broken")
    for folder, text in ((without, ""), (broken, "high-availability: [")):
        folder.mkdir()
        (folder / "config.yaml").write_text(text)
    folders = {
        "ours": conf(),
        "other": conf("/billing"),
        "elsewhere": conf(quorum="zk-9:2181"),
        "legacy": conf(name="flink-conf.yaml"),
        "without": without,
        "broken": broken,
    }
    process = flink(*(argument.format_map(folders) for argument in arguments))
    assert ownership.owner(process, OURS).name == owner


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("kubernetes.cluster-id: orders\nkubernetes.namespace: flink\n", "OURS"),
        ("kubernetes.cluster-id: orders\n", "OTHER"),
        ("kubernetes.cluster-id: billing\nkubernetes.namespace: flink\n", "OTHER"),
        ("kubernetes.namespace: flink\n", "UNKNOWN"),
    ],
)
def test_whose_a_process_is_in_kubernetes(
    text: str, owner: str, flink: Callable[..., FlinkProcess], tmp_path: Path
) -> None:
    """By its cluster id and its namespace, which is `default` where Flink is given none."""
    (tmp_path / "config.yaml").write_text(f"high-availability.type: kubernetes\n{text}")
    assert ownership.owner(flink("--configDir", str(tmp_path)), IN_KUBERNETES).name == owner


def test_the_environment_names_the_configuration_too(
    conf: Conf, flink: Callable[..., FlinkProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FLINK_CONF_DIR, as of Flink's client; the command line is stronger."""
    monkeypatch.setenv("FLINK_CONF_DIR", str(conf("/billing")))
    assert ownership.owner(flink(), OURS).name == "OTHER"
    assert ownership.owner(flink("--configDir", str(conf())), OURS).name == "OURS"


def test_a_configuration_that_hangs_is_not_read(flink: Callable[..., FlinkProcess], tmp_path: Path) -> None:
    """Its owner can replace it by a FIFO."""
    os.mkfifo(tmp_path / "config.yaml")
    assert ownership.owner(flink("--configDir", str(tmp_path)), OURS).name == "UNKNOWN"


def test_a_request_is_for_one_cluster(conf: Conf, flink: Callable[..., FlinkProcess], tmp_path: Path) -> None:
    """The capturing process knows which one: of all that it sees on this machine it takes no other's."""
    other = flink("--configDir", str(conf("/billing")))
    results: Queue[tuple[str, tuple[EvidenceItem, ...]]] = Queue()
    orders = ZooKeeperSettings("zk-1:2181", "/flink/orders", "orders", 60.0, 15.0, False)
    collector = Collector(tmp_path / "evidence", lambda *answer: results.put(answer), clusters=[orders])
    collector.start()
    try:
        collector.gather(Capture("c-1", "orders", "ep-1", Occasion.OPENED, Moment(0, 0), Source.PROCESSES))
        _, items = results.get(timeout=60)
    finally:
        collector.stop()
    assert {item.subject for item in items} == {"other clusters"}
    assert str(other.pid) not in repr(items)
