"""Who the Kubernetes driver is to a real API server, what it needs to be allowed, and what it says when it may not."""

import base64
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sidecar.drivers.kubernetes import Access, KubernetesDriver, access
from sidecar.drivers.kubernetes.access import ApiError
from tests.kit.certificates import Authority
from tests.kit.configmap_recorder import Recorder, drivers, said, version_of
from tests.kit.driver_recorder import CONNECTED, SUSPENDED, now
from tests.kit.kubernetes_server import USERS, Json, Kubernetes, Namespace, exec_credential, program
from tests.kit.relay import Proxy, Wire
from tests.kit.sidecar_process import command
from tests.kit.waiting import wait_for

Watch = Callable[[Access], Recorder]

CLUSTER = "demo"
NAME = "demo-cluster-config-map"
DISPATCHER = "org.apache.flink.k8s.leader.dispatcher"
WRONG = "a-token-that-nobody-has"


@pytest.fixture
def flink(kubernetes: Kubernetes) -> Namespace:
    """A namespace of this test's own."""
    return kubernetes.namespace(f"test-{uuid4()}")


@pytest.fixture
def watch(flink: Namespace) -> Iterator[Watch]:
    """Starts drivers, and stops them when the test is over."""
    with drivers() as start:
        yield lambda given: start(KubernetesDriver(given, flink.name, CLUSTER, now))


def test_a_role_for_the_one_name_is_enough(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may list and watch the cluster's ConfigMap, and no other, sees it, also when it is not there yet."""
    flink.allow("reader", "list", "watch", names=[NAME])
    recorder = watch(Access(kubernetes.kubeconfig("reader")))
    recorder.wait_complete()
    assert len(said(caplog, "no permission to list others")) == 1
    first = flink.create(NAME, {DISPATCHER: "1,a"})
    recorder.wait_version(first)
    second = flink.replace(NAME, {DISPATCHER: "2,b"})
    recorder.wait_version(second)
    assert recorder.versions() == [version_of(first), version_of(second)]
    assert recorder.view() == [CONNECTED]


def test_a_missing_permission_is_named_and_looked_for_again(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a Role nothing is in sight; the line says verb, resource, name and namespace; with half of it the other half."""
    flink.create(NAME, {DISPATCHER: "1,a"})
    recorder = watch(Access(kubernetes.kubeconfig("lister")))
    recorder.wait_view(SUSPENDED)
    wanted = f"grant a Role in namespace {flink.name} that allows the verb {{}} on the resource configmaps with resourceNames [{NAME}]"
    recorder.wait(lambda: bool(said(caplog, wanted.format("list"))))
    (line,) = said(caplog, wanted.format("list"))
    assert line.startswith(f"cluster {CLUSTER}: ")
    assert 'User "lister" cannot list resource' in line
    flink.allow("lister", "list", names=[NAME])
    recorder.wait(lambda: bool(said(caplog, wanted.format("watch"))))
    assert recorder.view() == [SUSPENDED]
    flink.allow("lister", "watch", names=[NAME])
    recorder.wait_complete()
    assert recorder.view() == [SUSPENDED, CONNECTED]
    assert len(said(caplog, "no permission")) == 2
    assert "\n" not in "".join(said(caplog, "no permission"))


def test_a_wrong_token_is_distinguished_from_a_missing_permission(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown identity is reported, with where the token stands; a kubeconfig that was put right is read again."""
    flink.create(NAME)
    file = kubernetes.kubeconfig(token=WRONG)
    recorder = watch(Access(file))
    recorder.wait_view(SUSPENDED)
    recorder.wait(lambda: bool(said(caplog, "unauthorized (401)")))
    assert str(file) in said(caplog, "unauthorized (401)")[0]
    file.write_text(kubernetes.kubeconfig().read_text())
    recorder.wait_complete()
    assert WRONG not in caplog.text


def test_a_client_certificate_is_somebody(watch: Watch, kubernetes: Kubernetes, flink: Namespace) -> None:
    """The certificate's common name is the user."""
    certificate, key = kubernetes.authority.issue(f"certified-{flink.name}")
    flink.allow(f"certified-{flink.name}", "list", "watch", names=[NAME])
    created = flink.create(NAME)
    file = kubernetes.kubeconfig("certified", client_certificate=str(certificate), client_key=str(key))
    recorder = watch(Access(file, "tests"))
    recorder.wait_complete()
    assert recorder.versions() == [version_of(created)]


def test_in_a_pod_the_token_is_read_before_each_request(
    watch: Watch,
    kubernetes: Kubernetes,
    flink: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A new token, with a newline behind it, is used from the next request on; one that is missing or refused is logged, and waited for."""
    wire = Wire(kubernetes.server.address)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", wire.address.partition(":")[2])
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "ca.crt").write_bytes(kubernetes.authority.ca.read_bytes())
    token = tmp_path / "token"
    created = flink.create(NAME)
    for user in ("somebody", "rotated"):
        flink.allow(user, "list", "watch", names=[NAME])

    recorder = watch(Access())
    recorder.wait(lambda: bool(said(caplog, f"cannot read the service account's token {token}: No such file")))
    token.write_text("expired\n")
    recorder.wait(lambda: bool(said(caplog, "the token or certificate of the service account is wrong or has expired")))
    token.write_text("token-of-somebody\n")
    recorder.wait_complete()
    token.write_text("token-of-rotated\n")
    wire.cut()
    recorder.wait_version(flink.replace(NAME, {DISPATCHER: "1,a"}))
    assert recorder.versions()[0] == version_of(created)
    assert recorder.view()[:2] == [SUSPENDED, CONNECTED]
    assert "token-of" not in caplog.text
    wire.close()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "does not exist"),
        ("{", "is not a valid kubeconfig"),
        ("", "Invalid kube-config"),
        (json.dumps({"contexts": [], "current-context": "x"}), "Expected object with name x in"),
        (
            json.dumps({"contexts": [{"name": "x", "context": {"user": "s3cret"}}], "current-context": "x"}),
            "cannot be used",
        ),
        (json.dumps({"users": [{"name": "x", "user": "s3cret"}], "clusters": 7, "contexts": {}}), "cannot be used"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None, line: str
) -> None:
    """The line names the file and what is wrong, and quotes nothing that may be a secret."""
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    recorder = watch(Access(file))
    recorder.wait_view(SUSPENDED)
    assert [line in record.getMessage() and str(file) in record.getMessage() for record in caplog.records] == [True]
    assert "s3cret" not in caplog.text


def test_outside_of_a_pod_a_kubeconfig_is_asked_for(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where Kubernetes has not said where its API server is, somebody else has to."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    watch(Access()).wait_view(SUSPENDED)
    assert len(said(caplog, "not in a pod")) == 1


def test_a_server_that_is_not_trusted_is_named(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate of somebody else is refused, and the line says so."""
    config = json.loads(kubernetes.kubeconfig().read_text())
    config["clusters"][0]["cluster"]["certificate-authority"] = str(Authority(tmp_path / "others").ca)
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    watch(Access(file)).wait_view(SUSPENDED)
    assert len(said(caplog, f"{kubernetes.server.url}: its certificate is not accepted: ")) == 1


# -- kubeconfigs that do more than name files --------------------------------------------------------------------------


def rewritten(kubernetes: Kubernetes, cluster: Json | None = None, user: Json | None = None) -> Path:
    """The admin's kubeconfig with these keys of its cluster, and with this user."""
    file = kubernetes.kubeconfig()
    config = json.loads(file.read_text())
    config["clusters"][0]["cluster"] |= cluster or {}
    if user is not None:
        config["users"][0]["user"] = user
    file.write_text(json.dumps(config))
    return file


def test_a_program_may_say_who_we_are(watch: Watch, kubernetes: Kubernetes, flink: Namespace, tmp_path: Path) -> None:
    """As the clouds have it: its token is used, and neither what it prints besides nor its environment is lost or mixed up."""
    flink.allow("somebody", "list", "watch", names=[NAME])
    created = flink.create(NAME)
    answer = tmp_path / "answer"
    answer.write_text(exec_credential(USERS["somebody"]))
    recorder = watch(Access(rewritten(kubernetes, user=program(f"echo hm >&2; test -n \"$PATH\" && cat '{answer}'"))))
    recorder.wait_complete()
    assert recorder.versions() == [version_of(created)]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (
            "echo 'error: token expired, run login' >&2; exit 1",
            "exec: process returned 1. error: token expired, run login",
        ),
        ('echo \'{"token": "s3cret"}\'', "exec: malformed response. missing key 'apiVersion'"),
        ("echo nothing", "exec: failed to decode process output: Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_program_that_fails_is_what_the_line_says(kubernetes: Kubernetes, script: str, problem: str) -> None:
    """Not that the token, which there is none of, is wrong. `who` ends at once."""
    kubeconfig = rewritten(kubernetes, user=program(script))
    place = ["--kubernetes", "--cluster-id", CLUSTER, "--kubeconfig", str(kubeconfig)]
    asked = command("who", *place, "--timeout", "60m", seconds=60)
    assert asked.returncode == 3
    assert asked.stderr.splitlines()[-1].endswith(f"the kubeconfig {kubeconfig} cannot be used: {problem}")
    assert "s3cret" not in asked.stderr


def test_a_program_that_does_not_exist_is_named(kubernetes: Kubernetes) -> None:
    """As kubectl names it."""
    user = program("true")
    user["exec"]["command"] = "./no-such-program"
    with pytest.raises(ApiError, match=r"No such file or directory: './no-such-program'"):
        Access(rewritten(kubernetes, user=user)).credentials()


def test_who_ends_at_once_where_a_role_is_missing(kubernetes: Kubernetes, flink: Namespace) -> None:
    """And names what to grant."""
    place = ["--kubernetes", "--cluster-id", CLUSTER, "--namespace", flink.name]
    kubeconfig = kubernetes.kubeconfig("lister")
    asked = command("who", *place, "--kubeconfig", str(kubeconfig), "--timeout", "60m", seconds=60)
    assert asked.returncode == 3
    assert f"grant a Role in namespace {flink.name} that allows the verb list" in asked.stderr.splitlines()[-1]


def test_a_program_that_hangs_is_ended_when_the_driver_stops(
    watch: Watch, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    """It, and what it started, is gone, and the driver's thread too."""
    pid = tmp_path / "pid"
    recorder = watch(
        Access(rewritten(kubernetes, user=program(f"echo $$ > '{pid}.new'; mv '{pid}.new' '{pid}'; sleep 600")))
    )
    recorder.wait(pid.exists)
    recorder.driver.stop()
    process = Path("/proc") / pid.read_text().strip()
    wait_for(f"the end of {process}", lambda: not process.exists())
    wait_for("the thread's end", lambda: "kubernetes-driver" not in {thread.name for thread in threading.enumerate()})


def test_certificates_may_stand_in_the_kubeconfig(watch: Watch, kubernetes: Kubernetes, flink: Namespace) -> None:
    """CA, certificate and key as base64, as kubeadm writes them; none of them is left in a file."""
    certificate, key = kubernetes.authority.issue(f"inline-{flink.name}")
    flink.allow(f"inline-{flink.name}", "list", "watch", names=[NAME])
    created = flink.create(NAME)
    encoded = {
        name: base64.b64encode(file.read_bytes()).decode()
        for name, file in {"client-certificate-data": certificate, "client-key-data": key}.items()
    }
    authority = base64.b64encode(kubernetes.authority.ca.read_bytes()).decode()
    before = set(Path(tempfile.gettempdir()).iterdir())
    recorder = watch(Access(rewritten(kubernetes, {"certificate-authority-data": authority}, encoded)))
    recorder.wait_complete()
    assert recorder.versions() == [version_of(created)]
    left = [path for path in set(Path(tempfile.gettempdir()).iterdir()) - before if path.name.startswith("tmp")]
    assert [path for path in left if path.is_file() and key.read_bytes() in path.read_bytes()] == []


@pytest.mark.parametrize("where", ["kubeconfig", "environment"])
def test_a_proxy_leads_to_the_api_server(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """That of the kubeconfig, else that of the environment, by CONNECT."""
    created = flink.create(NAME)
    with Proxy() as proxy:
        if where == "environment":
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            monkeypatch.setenv("NO_PROXY", "example.com")
        recorder = watch(Access(rewritten(kubernetes, {"proxy-url": proxy.url} if where == "kubeconfig" else {})))
        recorder.wait_complete()
        assert recorder.versions() == [version_of(created)]
        assert set(proxy.asked) == {kubernetes.server.address}
        recorder.driver.stop()


def test_another_name_of_the_server_is_accepted_where_it_is_given(
    watch: Watch, kubernetes: Kubernetes, flink: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """`tls-server-name` says whose certificate is expected: the right one is, another one is not."""
    created = flink.create(NAME)
    watch(Access(rewritten(kubernetes, {"tls-server-name": "kubernetes.example"}))).wait_view(SUSPENDED)
    assert len(said(caplog, "its certificate is not accepted")) == 1
    recorder = watch(Access(rewritten(kubernetes, {"tls-server-name": "127.0.0.1"})))
    recorder.wait_complete()
    assert recorder.versions() == [version_of(created)]


def test_a_token_that_is_none_is_named_and_not_printed(
    watch: Watch, kubernetes: Kubernetes, caplog: pytest.LogCaptureFixture
) -> None:
    """One with a line break inside would be a header of its own."""
    watch(Access(rewritten(kubernetes, user={"token": "s3cret\nX-Evil: 1"}))).wait_view(SUSPENDED)
    assert len(said(caplog, "the kubeconfig holds no token")) == 1
    assert "s3cret" not in caplog.text


def test_the_library_stays_out_of_the_sidecar() -> None:
    """It would cost 20 MiB: it is loaded by the child process that reads a kubeconfig, and by nobody else."""
    code = "import sys, sidecar.app, sidecar.drivers.kubernetes; print('kubernetes' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-I", "-c", code], text=True, timeout=60) == "False\n"
