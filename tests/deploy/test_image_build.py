"""Both images can be built from the Dockerfile, and start as an unprivileged user on a read-only root."""

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import pyarrow.dataset
import pytest

import sidecar
from sidecar.core.pods import host_port
from tests import ROOT
from tests.audit.spooling import ids, seal, transition
from tests.deploy.manifests import CHART, DEPLOY, document, pod_of
from tests.deploy.test_kubernetes_manifests import (
    CLUSTER_ID,
    CONFIG_MAP,
    DISPATCHER,
    HOLDER,
    LEDGER,
    NAMESPACE,
    lease,
    renewed,
)
from tests.kit import helm
from tests.kit.cluster import A
from tests.kit.config_maps import LEADER
from tests.kit.fake_flink import Flink
from tests.kit.helm import Values
from tests.kit.images import BUILD_SECONDS, TOOLS, Builder, Image, RootFolder, missing
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.pod import Prepared, prepare
from tests.kit.receivers import webhook
from tests.kit.s3_server import S3Server, reach
from tests.kit.serving import serving
from tests.kit.waiting import wait_for
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper

COMPONENTS = ("dispatcher", "resourcemanager", "restserver")
AS_FILE = "file:/etc/flink-ha-sidecar-receivers/SLACK_URL"
pytestmark = [pytest.mark.image, pytest.mark.timeout(BUILD_SECONDS * 2)]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    """Both, built once."""
    if lacks := missing():
        pytest.skip(f"{', '.join(lacks)} missing: images are built and started with {', '.join(TOOLS)}, as root")
    return Builder(tmp_path_factory.mktemp("images")).build()


@pytest.fixture(scope="module")
def root(images: dict[str, Image]) -> Iterator[RootFolder]:
    """The sidecar's image."""
    with images["sidecar"].root() as folder:
        yield folder


@pytest.fixture(scope="module")
def audit_root(images: dict[str, Image]) -> Iterator[RootFolder]:
    """The audit's image."""
    with images["audit"].root() as folder:
        yield folder


def test_their_sizes_are_known(images: dict[str, Image], capsys: pytest.CaptureFixture[str]) -> None:
    """Both were built, and the log of the tests says how large they are."""
    with capsys.disabled():
        print("\n" + "\n".join(f"image {target}: {image.size}" for target, image in images.items()))  # noqa: T201
    assert [bool(re.fullmatch(r"[\d.]+ [MG]B", image.size)) for image in images.values()] == [True, True]


def test_the_command_answers(root: RootFolder) -> None:
    """`--help` and `--version` print and end with 0."""
    described = root.run("flink-ha-sidecar", "--help")
    assert (described.returncode, described.stderr) == (0, "")
    assert "Usage: flink-ha-sidecar" in described.stdout
    assert sidecar.__version__ in root.run("flink-ha-sidecar", "--version").stdout


def test_it_says_who_leads(root: RootFolder, zookeeper: ZooKeeper) -> None:
    """Of a real ZooKeeper, with nothing but the image."""
    with connected(zookeeper.address) as client:
        Flink(ZNodes(writer=ZooKeeperWriter(client))).elect(A)
        shown = root.run("flink-ha-sidecar", "who", "--zookeeper", zookeeper.address)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "jm-a:6123" in shown.stdout


def test_it_runs_as_an_unprivileged_user_who_cannot_write(root: RootFolder) -> None:
    """The image's user is 65532, without a capability, and the root is read-only but for the volumes and /tmp."""
    status = root.run("cat", "/proc/self/status").stdout
    assert re.findall(r"^(?:Uid|Gid|CapEff|CapBnd|NoNewPrivs):\s+(\S+)", status, re.MULTILINE) == [
        *("65532", "65532"),
        *("0" * 16, "0" * 16),
        "1",
    ]
    written = root.run("sh", "-c", "for d in / /opt/flink-ha-sidecar /etc /tmp; do touch $d/x 2>&1 || :; done")
    assert written.stdout.count("Read-only file system") == 3
    writable = "touch /tmp/x /var/lib/flink-ha-sidecar/x /var/spool/flink-ha-sidecar/x"
    assert root.run("sh", "-c", writable).returncode == 0


def test_what_it_needs_beside_python_is_there_and_nothing_else(root: RootFolder, audit_root: RootFolder) -> None:
    """py-spy starts; there is no compiler and no pip; a Java is in the audit's image alone."""
    assert re.match(r"py-spy \d", root.run("py-spy", "--version").stdout)
    assert [program for program in ("gcc", "pip", "pip3", "java") if root.has(program)] == []
    assert [program for program in ("gcc", "pip", "pip3", "java") if audit_root.has(program)] == ["java"]


def test_an_object_store_can_be_used(root: RootFolder) -> None:
    """The base has no certificate authorities, without which no store can be opened: `run` starts, and goes on until it is ended."""
    config = "zookeeper: {quorum: '127.0.0.1:1'}\nobserver: tests\nspool: {url: 's3://bucket/spool'}\n"
    (root.folder / "etc" / "object-store.yaml").write_text(config)
    store = "AWS_ACCESS_KEY_ID=somebody AWS_SECRET_ACCESS_KEY=secret AWS_REGION=somewhere"
    run = "timeout --preserve-status 5 flink-ha-sidecar run --config /etc/object-store.yaml"
    ended = root.run("sh", "-c", f"{store} {run}")
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


def test_run_without_a_configuration_says_what_is_missing(root: RootFolder) -> None:
    """The image's own command, with nothing mounted, ends with 2 and one line that says what to do."""
    with root.start() as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (2, "")
    assert len(errors.splitlines()) == 1, errors
    assert "Traceback" not in errors


def test_run_watches_where_no_store_answers_and_stops_with_0(root: RootFolder) -> None:
    """`run` on a read-only root keeps its journal in the volume, is alive, not ready, and ends with 0 at SIGTERM."""
    port, nobody = free_port(), free_port()
    config = f"zookeeper: {{quorum: '127.0.0.1:{nobody}'}}\nobserver: tests\nhttp: {{host: 127.0.0.1, port: {port}}}\n"
    (root.folder / "etc" / "flink-ha-sidecar.yaml").write_text(config)
    process = root.start("run", "--config", "/etc/flink-ha-sidecar.yaml")
    try:
        deadline = time.monotonic() + 60
        while _status(port, "/livez") != 200:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.1)
        assert _status(port, "/readyz") == 503
        journal = Path(f"/proc/{process.pid}/root/var/lib/flink-ha-sidecar/journal.db")
        assert journal.stat().st_uid == 65532
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def _status(port: int, path: str) -> int:
    """The status of an answer; 0 where there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_each_image_says_what_it_is_made_of(root: RootFolder, audit_root: RootFolder) -> None:
    """Its SBOM lists Debian's packages as dpkg does, Python's as the lock does, and Spark's jars where there are any."""
    for image, name in ((root, "sidecar"), (audit_root, "audit")):
        bom = json.loads(image.run("cat", "/opt/flink-ha-sidecar/sbom.cdx.json").stdout)
        assert (bom["bomFormat"], bom["metadata"]["component"]["version"]) == ("CycloneDX", sidecar.__version__)
        places = [found["purl"] for found in bom["components"] if "purl" in found]
        assert len({*places}) == len(places)
        listed = image.run("dpkg-query", "--show", "-f", "${Package}\n").stdout.split()
        assert sorted(place.split("/")[2].split("@")[0] for place in places if place.startswith("pkg:deb/")) == sorted(
            map(quote, listed)
        )
        lock = (ROOT / "requirements" / f"{name}.lock").read_text()
        locked = {*re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)}
        installed = {re.split("[/@]", place)[1] for place in places if place.startswith("pkg:pypi/")}
        assert installed == locked | {"flink-ha-sidecar"}
        jars = [found for found in bom["components"] if found["type"] == "file"]
        assert bool(jars) == (name == "audit")


@contextmanager
def installed(root: RootFolder, kubernetes: Kubernetes, values: Values, folder: Path) -> Iterator[Prepared]:
    """The chart, installed by Helm, its pod started as the kubelet would, and ended with SIGTERM."""
    helm.install(CHART, values, "flink-ha-sidecar", NAMESPACE, kubernetes.kubeconfig())
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/flink-ha-sidecar"
    spec = pod_of({"kind": "Deployment"} | kubernetes.server.ask("GET", path))
    pod = prepare(kubernetes, NAMESPACE, "flink-ha-sidecar-0", spec, folder)
    process = root.start(*pod.arguments, volumes=pod.volumes, environment=pod.environment)
    try:
        yield pod
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.mark.parametrize("as_files", [False, True])
def test_from_the_documented_command_to_the_first_alert(
    root: RootFolder, tmp_path: Path, as_files: bool, apiserver: Path
) -> None:
    """Another JobManager takes the lead, and there is one message; then the commands that Helm has printed are run."""
    kubernetes = Kubernetes(tmp_path / "kubernetes", apiserver)
    kubernetes.start()
    first, second = ({f"{LEADER}{name}": f"{UUID(int=n)},{DISPATCHER}" for name in COMPONENTS} for n in (1, 2))
    try:
        namespace = kubernetes.namespace(NAMESPACE)
        namespace.create(CONFIG_MAP, first, lease())
        with webhook() as people:
            values: Values = {
                "clusterId": CLUSTER_ID,
                "receivers": [{"name": "ops", "urls": [AS_FILE if as_files else "${SLACK_URL}"]}],
                "receiversSecret": {"values": {"SLACK_URL": people.url}, "asFiles": as_files},
                "config": {"http": {"port": (port := free_port())}},
            }
            with installed(root, kubernetes, values, tmp_path / "volumes") as pod:
                with renewed(namespace, CONFIG_MAP, first):
                    wait_for("the leader", lambda: DISPATCHER in _leaders(port))
                with renewed(namespace, CONFIG_MAP, second, holder=HOLDER.replace("a", "b")):
                    wait_for("a message", lambda: people.received)
                    who, test = (_answer(root, pod, arguments) for arguments in _commands(values))
        assert who.count(host_port(DISPATCHER)) == len(COMPONENTS)
        assert "ops" in test
        assert len(people.received) == 2, [message.body for message in people.received]  # the alert, and the test
        ledger = kubernetes.server.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{LEDGER}")
        assert "ledger" in ledger["data"]
    finally:
        kubernetes.kill()


def _commands(values: Values) -> list[str]:
    """What the notes of the chart have run in the pod."""
    return re.findall(r" -- flink-ha-sidecar (.*)", helm.notes(CHART, values, "flink-ha-sidecar", NAMESPACE))


def _answer(root: RootFolder, pod: Prepared, arguments: str) -> str:
    """Of another command in the pod."""
    with root.start(*arguments.split(), volumes=pod.volumes, environment=pod.environment) as asked:
        output, errors = asked.communicate(timeout=60)
    assert asked.returncode == 0, errors
    return output


def _leaders(port: int) -> str:
    """What the sidecar says of leaders; nothing where it does not answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/leaders", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.spark
def test_the_cronjobs_steps_keep_an_audit_log(audit_root: RootFolder, tmp_path: Path) -> None:
    """The arguments of deploy/audit, on its volumes, with real segments: the records are in the log, and read-only is what may be."""
    records = [transition(number, datetime.now(UTC) - timedelta(days=1)) for number in range(20)]
    job = pod_of(document(DEPLOY / "audit" / "cronjob.yaml"))
    folders = {name: tmp_path / name for name in ("spool", "audit", "tmp")}
    seal(folders["spool"], "flink-ha-sidecar", 1, records)
    for folder in folders.values():  # as the kubelet does it with an fsGroup of 65532
        folder.mkdir(exist_ok=True)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 0, 65532)
            path.chmod(0o2770 if path.is_dir() else 0o660)
    outputs = []
    for step in (*job["initContainers"], *job["containers"]):
        volumes = {
            mount["mountPath"]: (folders[mount["name"]], "ro" if mount.get("readOnly") else "rw")
            for mount in step["volumeMounts"]
        }
        with audit_root.start(*step["args"], volumes=volumes) as process:
            output, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, ""), step["name"]
        outputs.append(output)
    assert outputs[0] == "1 segments: 20 transitions\n"
    assert "expired: 0 segments" in outputs[1]
    table = pyarrow.dataset.dataset(folders["audit"] / "transitions", partitioning="hive").to_table(columns=["id"])
    assert sorted(table.column("id").to_pylist()) == ids(records)


@pytest.mark.spark
def test_the_audit_image_starts_spark(audit_root: RootFolder) -> None:
    """An ingest of an empty spool, as the same user on a read-only root, ends with 0. The archive of Spark's classes fits."""
    folders = "/tmp/spool /tmp/audit"  # noqa: S108  in the image's own /tmp
    ingest = "flink-ha-sidecar audit ingest --spool /tmp/spool --audit /tmp/audit"
    done = audit_root.run("sh", "-c", f"mkdir -p {folders} && {ingest}", seconds=300)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    archive = audit_root.run("flink-ha-sidecar", "audit", "warm-up", seconds=300)
    assert archive.stdout.endswith(" MB, made before\n"), archive.stderr  # the JVM accepts the one of the build
    described = audit_root.run("flink-ha-sidecar", "audit", "--help")
    assert (described.returncode, described.stderr) == (0, "")


@pytest.mark.spark
def test_the_audit_image_has_the_connector_for_s3(audit_root: RootFolder, tmp_path: Path) -> None:
    """A log that is not there is all that is wrong."""
    with serving(S3Server(tmp_path)) as server:
        verify = audit_root.start("audit", "verify", "--audit", "s3://bucket/audit", environment=reach(server.url))
        with verify as process:
            output, errors = process.communicate(timeout=300)
    assert (output, errors) == ("", "flink-ha-sidecar: cannot verify s3://bucket/audit: there is no such folder\n")
