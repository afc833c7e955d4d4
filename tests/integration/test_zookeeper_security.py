"""The driver proves who it is to a real ZooKeeper and makes sure whom it talks to; where they do not come together, it says why."""

import json
import logging
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.security import make_acl, make_digest_acl

from sidecar.drivers.zookeeper import ZooKeeperDriver
from sidecar.drivers.zookeeper.security import PLAIN, Security
from sidecar.drivers.zookeeper.zookeeper_session import Handler
from sidecar.settings import SaslSettings, Secret, TlsSettings
from tests.kit.certificates import Authority
from tests.kit.cluster import A
from tests.kit.driver_recorder import CLUSTER, CONNECTED, SUSPENDED, Recorder, now, recorders
from tests.kit.fake_flink import Flink
from tests.kit.relay import Wire
from tests.kit.secured_zookeeper import PASSWORD, USER, SecuredZooKeeper
from tests.kit.sidecar_process import command
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.kit.zookeeper_ensemble import Member
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper

DISPATCHER = "/leader/dispatcher/connection_info"
SASL = Security(sasl=SaslSettings(USER, Secret(PASSWORD)))
DIGEST = Security(authorization={"digest": Secret("flink:hunter2")})
TLS_1_3 = "ssl.protocol=TLSv1.3\nssl.enabledProtocols=TLSv1.3\nssl.ciphersuites=TLS_AES_256_GCM_SHA384\n"

Attach = Callable[..., Recorder]
Lines = Callable[[], list[str]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom servers and clients trust."""
    return Authority(tmp_path_factory.mktemp("certificates") / "trusted")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom nobody trusts."""
    return Authority(tmp_path_factory.mktemp("certificates") / "stranger")


@pytest.fixture(scope="module")
def identity(authority: Authority) -> tuple[Path, Path]:
    """What servers show: they are 127.0.0.1, and not localhost."""
    return authority.issue("server", "IP:127.0.0.1", "DNS:zk-1.example")


Start = Callable[..., SecuredZooKeeper]


@pytest.fixture(scope="module")
def start_server(
    tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path, authority: Authority
) -> Iterator[Start]:
    """Starts servers, `start_server(identity, lines of zoo.cfg)`, for all tests here."""
    servers = []

    def start(identity: tuple[Path, Path], config: str) -> SecuredZooKeeper:
        folder = tmp_path_factory.mktemp("secured")
        server = SecuredZooKeeper(folder, flink_2_home, java, authority, identity, config=config)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(scope="module")
def server(start_server: Start, identity: tuple[Path, Path]) -> SecuredZooKeeper:
    """It lets everybody in, with TLS and without, and knows who has authenticated by SASL or digest."""
    return start_server(identity, "ssl.clientAuth=none\n")


@pytest.fixture(scope="module", params=["TLS 1.2", "TLS 1.3"])
def mutual(start_server: Start, identity: tuple[Path, Path], request: pytest.FixtureRequest) -> SecuredZooKeeper:
    """It demands a certificate. A server of TLS 1.2 says so in the handshake, one of TLS 1.3 behind it."""
    return start_server(identity, f"ssl.clientAuth=need\n{TLS_1_3 if request.param == 'TLS 1.3' else ''}")


@pytest.fixture
def attach() -> Iterator[Attach]:
    """Starts drivers, `attach(quorum, security)`, and stops them when the test is over."""
    with recorders(Recorder) as record:

        def start(quorum: str, security: Security, namespace: str = "/flink/default") -> Recorder:
            driver = ZooKeeperDriver(
                quorum, namespace, CLUSTER, now, session_timeout=20, connection_timeout=5, security=security
            )
            return record(driver)

        yield start


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The driver's warnings; everybody logs everything meanwhile."""
    caplog.set_level(logging.DEBUG)
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.name == "sidecar.zookeeper" and record.levelno >= logging.WARNING
    ]


def trusting(
    authority: Authority, certificate: tuple[Path, Path] | None = None, password: str | None = None
) -> Security:
    """TLS that trusts this authority."""
    certificate_file, key_file = certificate or (None, None)
    return Security(TlsSettings(authority.ca, certificate_file, key_file, Secret(password) if password else None))


def test_status_uses_the_credentials_of_the_configuration(
    server: SecuredZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    """TLS and SASL, where nobody else may read the leaders."""
    acl = make_acl("sasl", USER, all=True)
    with connected(
        server.address, sasl_options={"mechanism": "DIGEST-MD5", "username": USER, "password": PASSWORD}
    ) as client:
        client.default_acl = [acl]
        Flink(ZNodes(writer=ZooKeeperWriter(client, "/flink/secured"))).elect(A)

        def status(*security: str) -> subprocess.CompletedProcess[str]:
            file = tmp_path / "sidecar.yaml"
            place = f"quorum: '{server.secure_address}', cluster_id: secured, tls: {{ca_file: '{authority.ca}'}}"
            file.write_text(f"zookeeper: {{{', '.join([place, *security])}}}\nstate_dir: {tmp_path}\n")
            return command("status", "--config", str(file), "--timeout", "20s", "-o", "json")

        trusted = status(f"sasl: {{username: {USER}, password: {PASSWORD}}}")
        assert trusted.returncode == 0, trusted.stderr
        assert {leader["state"] for leader in json.loads(trusted.stdout)["clusters"][0]["leaders"]} == {"held"}
        refused = status()
        assert refused.returncode == 3
        (cluster,) = json.loads(refused.stdout)["clusters"]
        assert cluster["sentence"] == (
            "ZooKeeper does not let it be read: /flink/secured/leader: no permission to read it: give Flink's credentials, "
            "zookeeper.authorization or zookeeper.sasl"
        )


def test_who_ends_at_once_where_an_acl_refuses_it(server: SecuredZooKeeper) -> None:
    """It names the path and what to give, and does not blame the network after its timeout."""
    acl = [make_digest_acl("flink", "secret", all=True)]
    with connected(server.address) as client:
        client.add_auth("digest", "flink:secret")
        client.create("/sec/c/leader/dispatcher", b"", acl=acl, makepath=True)
    asked = command(
        "who", "--zookeeper", server.address, "--root", "/sec", "--cluster-id", "c", "--timeout", "60m", seconds=60
    )
    assert asked.returncode == 3
    assert asked.stderr.splitlines()[-1].endswith(
        "/sec/c/leader: no permission to read it: give Flink's credentials, zookeeper.authorization or zookeeper.sasl"
    )


def test_status_of_clusters_to_find_ends_at_once_where_an_acl_refuses_it(
    server: SecuredZooKeeper, tmp_path: Path
) -> None:
    """It cannot name the clusters there are, and logs why."""
    acl = [make_digest_acl("flink", "secret", all=True)]
    with connected(server.address) as client:
        client.create("/found-secured", b"", acl=acl)
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        f"zookeeper: {{quorum: '{server.address}', root: /found-secured, clusters: all}}\nstate_dir: {tmp_path}\n"
    )
    asked = command("status", "--config", str(file), "--timeout", "60m", "-o", "json", seconds=60)
    assert asked.returncode == 3
    (problem,) = json.loads(asked.stdout)["problems"]
    assert problem.endswith("no permission to read it")


def reason(attach: Attach, lines: Lines, quorum: str, security: Security) -> str:
    """What the driver says first of a server that it cannot connect to."""
    recorder = attach(quorum, security)
    recorder.wait(lambda: bool(lines()), 20)
    assert recorder.view() == [SUSPENDED]
    opening, _, why = lines()[0].partition("/flink/default: ")
    assert opening == f"no connection to ZooKeeper {quorum}"
    return why.removesuffix("; retrying")


# -- TLS ---------------------------------------------------------------------------------------------------------------


def test_an_encrypted_connection_sees_leaders(attach: Attach, server: SecuredZooKeeper, authority: Authority) -> None:
    """With the CA of the server's certificate, and nothing else."""
    recorder = attach(server.secure_address, trusting(authority))
    recorder.wait_complete()
    assert recorder.view() == [CONNECTED]


def test_a_server_that_demands_a_certificate_gets_ours(
    attach: Attach, mutual: SecuredZooKeeper, authority: Authority
) -> None:
    """Also where its private key is encrypted."""
    password = "correct-battery"
    recorder = attach(mutual.secure_address, trusting(authority, authority.issue("me", password=password), password))
    recorder.wait_complete()


def test_a_missing_client_certificate_is_called_so(
    attach: Attach, lines: Lines, mutual: SecuredZooKeeper, authority: Authority
) -> None:
    """By servers of TLS 1.2 and of TLS 1.3. Which alert a server of TLS 1.2 sends differs between releases of Java 17."""
    assert reason(attach, lines, mutual.secure_address, trusting(authority)) in {
        "the server demands a client certificate: set zookeeper.tls.certificate_file and key_file",
        "the server refuses the TLS handshake (handshake failure): it may demand a client certificate",
    }


def test_a_client_certificate_that_is_not_accepted_is_called_so(
    attach: Attach, lines: Lines, mutual: SecuredZooKeeper, authority: Authority, stranger: Authority
) -> None:
    """The line names the file."""
    certificate, key = stranger.issue("me")
    why = reason(attach, lines, mutual.secure_address, trusting(authority, (certificate, key)))
    assert why == f"the server does not accept the client certificate {certificate} (certificate unknown)"


def test_a_wrong_ca_is_called_so(
    attach: Attach, lines: Lines, server: SecuredZooKeeper, authority: Authority, stranger: Authority
) -> None:
    """The given one, or those of the system; a given one takes the place of the system's."""
    assert reason(attach, lines, server.secure_address, trusting(stranger)) == (
        f"the server's certificate is not signed by the given CA ({stranger.ca})"
    )
    attach(server.secure_address, Security(TlsSettings())).wait(lambda: len(lines()) > 1, 20)
    assert "is not signed by a CA of this system: set zookeeper.tls.ca_file; retrying" in lines()[1]


def test_a_certificate_of_another_host_is_called_so(
    attach: Attach, lines: Lines, server: SecuredZooKeeper, authority: Authority
) -> None:
    """The line says for whom it is."""
    quorum = server.secure_address.replace("127.0.0.1", "localhost")
    attach(quorum, trusting(authority)).wait(lambda: any("another host" in line for line in lines()), 20)
    why = "the server's certificate is for another host than localhost (127.0.0.1, zk-1.example)"
    assert f"no connection to ZooKeeper {quorum}/flink/default: {why}; retrying" in lines()


def test_an_expired_certificate_is_called_so(
    attach: Attach, lines: Lines, start_server: Start, authority: Authority
) -> None:
    """Of the server, or of its CA: OpenSSL does not say which."""
    old = start_server(authority.issue("old", "IP:127.0.0.1", days=-1), "ssl.clientAuth=none\n")
    assert reason(attach, lines, old.secure_address, trusting(authority)) == (
        "the server's certificate, or that of its CA, has expired"
    )


def test_tls_to_a_plain_port_is_called_so(
    attach: Attach, lines: Lines, server: SecuredZooKeeper, authority: Authority
) -> None:
    """The server only hangs up; the cause is known because it answers in plain text."""
    assert reason(attach, lines, server.address, trusting(authority)) == (
        "the server does not speak TLS on this port: use the secure port, or remove zookeeper.tls"
    )


def test_plain_to_a_tls_port_is_called_so(attach: Attach, lines: Lines, mutual: SecuredZooKeeper) -> None:
    """The server only hangs up; the cause is known because it answers a TLS handshake, also where it demands a certificate."""
    assert reason(attach, lines, mutual.secure_address, PLAIN) == (
        "the server expects TLS on this port: set zookeeper.tls, or use the plain port"
    )


def test_renewed_files_are_used_without_a_restart(
    attach: Attach, lines: Lines, server: SecuredZooKeeper, authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """Certificates live for days, sidecars for months: each connection reads the files anew."""
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(stranger.ca.read_text())
    recorder = attach(server.secure_address, Security(TlsSettings(ca_file)))
    recorder.wait(lambda: bool(lines()), 20)
    ca_file.unlink()
    recorder.wait(lambda: f"{ca_file} cannot be read: No such file or directory; retrying" in lines()[-1], 20)
    ca_file.write_text(authority.ca.read_text())
    recorder.wait_complete()
    assert recorder.view() == [SUSPENDED, CONNECTED]


def test_what_tls_has_decrypted_already_is_readable(authority: Authority, identity: tuple[Path, Path]) -> None:
    """Of two answers in one TLS record, as proxies make them, the system knows of none once one is read: it would wait for a third."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*identity)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as other:
        accepted = other.submit(lambda: context.wrap_socket(listener.accept()[0], server_side=True))
        connection = trusting(authority).connect(listener.getsockname()[:2], "127.0.0.1", 10)
        with connection, accepted.result() as peer:
            peer.sendall(b"12")
            assert connection.recv(1) == b"1"
            handler = Handler(5, PLAIN, lambda: None)
            assert handler.select([connection], [], [], 0) == ([connection], [], [])
            assert connection.recv(1) == b"2"
            assert handler.select([connection], [], [], 0) == ([], [], [])


# -- who we are --------------------------------------------------------------------------------------------------------


def write_as_creator(server: ZooKeeper, path: str, data: bytes, security: Security) -> None:
    """As Flink does with `high-availability.zookeeper.client.acl: creator`: everything on the way is the creator's, and nobody else's."""
    acl = [make_acl("auth", "", all=True)]
    with connected(server.address, default_acl=acl, **security.client_options()) as client:
        if client.exists(path):
            client.set(path, data)
        else:
            client.create(path, data, makepath=True)


def assert_refused(recorder: Recorder) -> None:
    """It hears that it may not read who leads, and nothing that would mean that nobody does."""
    recorder.wait(lambda: bool(recorder.refused(DISPATCHER)), 20)
    assert recorder.refused(DISPATCHER) == ["no permission to read it"]
    assert recorder.nodes(DISPATCHER) == []


@pytest.mark.parametrize("creator", [SASL, DIGEST], ids=["sasl", "digest"])
def test_what_only_its_creator_may_read_is_seen_by_who_is_the_same(
    attach: Attach, server: SecuredZooKeeper, creator: Security, request: pytest.FixtureRequest
) -> None:
    """Without credentials, or with others, every place of it is refused, and never taken for empty."""
    chroot = f"/creator-{request.node.callspec.id}"
    write_as_creator(server, f"{chroot}/flink/default{DISPATCHER}", b"leader", creator)
    same = attach(f"{server.address}{chroot}", creator)
    same.wait_complete()
    assert same.standing() == {DISPATCHER: b"leader"}
    assert same.refused(DISPATCHER) == []
    for other in (PLAIN, DIGEST if creator is SASL else SASL):
        assert_refused(attach(f"{server.address}{chroot}", other))


def test_a_reconnected_driver_is_still_who_it_was(
    attach: Attach, server: SecuredZooKeeper, authority: Authority
) -> None:
    """Over TLS, through a chroot, with a dead server in the quorum: after a cut it reads what only it may read."""
    path = f"/again/flink/default{DISPATCHER}"
    write_as_creator(server, path, b"first", SASL)
    wire = Wire(server.secure_address)
    try:
        security = Security(trusting(authority).tls, SASL.sasl, DIGEST.authorization)
        recorder = attach(f"127.0.0.1:{free_port()},{wire.address}/again", security)
        recorder.wait_value(DISPATCHER, b"first")
        wire.cut()
        recorder.wait(lambda: recorder.view()[-3:] == [CONNECTED, SUSPENDED, CONNECTED], 20)
        write_as_creator(server, path, b"second", SASL)
        recorder.wait_value(DISPATCHER, b"second")
        assert recorder.refused(DISPATCHER) == []
    finally:
        wire.close()


@pytest.mark.timing
def test_a_wrong_password_is_said_once_a_minute_and_tried_again_in_peace(
    attach: Attach, lines: Lines, server: SecuredZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo gives up for good; the driver begins anew every two seconds. The password is in no log, of whatever level."""
    marker = "lsHXuNTeR2"
    before = server.log.read_text(errors="replace").count("failed to SASL authenticate")
    recorder = attach(server.address, Security(sasl=SaslSettings(USER, Secret(marker))))

    def attempts() -> int:
        return server.log.read_text(errors="replace").count("failed to SASL authenticate") - before

    began = time.monotonic()
    recorder.wait(lambda: attempts() >= 3, 30)
    assert attempts() <= 2 + (time.monotonic() - began) / 1.5
    assert CONNECTED not in recorder.view()
    (line,) = lines()
    assert line == (
        f"no connection to ZooKeeper {server.address}/flink/default: authentication failed: "
        "the server does not accept the user or password of zookeeper.sasl; retrying"
    )
    recorder.driver.stop()
    assert marker not in caplog.text


def test_a_server_without_sasl_is_called_so_and_left_in_peace(
    attach: Attach, lines: Lines, shared_zookeeper: ZooKeeper
) -> None:
    """It answers each question with nothing; who goes on asking asks for ever."""
    before = shared_zookeeper.log.read_text(errors="replace").count("saslServer is null")
    recorder = attach(shared_zookeeper.address, SASL)
    recorder.wait(lambda: bool(lines()), 20)
    (line,) = lines()
    assert line == (
        f"no connection to ZooKeeper {shared_zookeeper.address}/flink/default: authentication failed: "
        "the server has no SASL DIGEST-MD5: remove zookeeper.sasl, or enable it there; retrying"
    )
    recorder.driver.stop()
    assert shared_zookeeper.log.read_text(errors="replace").count("saslServer is null") - before <= 10


def test_a_server_that_demands_authentication_is_called_so(
    attach: Attach, lines: Lines, start_server: Start, identity: tuple[Path, Path]
) -> None:
    """It lets everybody connect, and hangs up at the first question."""
    strict = start_server(identity, "enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n")
    assert reason(attach, lines, strict.address, PLAIN) == (
        "the server demands authentication: set zookeeper.sasl or zookeeper.authorization"
    )
    attach(strict.address, SASL).wait_complete()


def test_an_authorization_that_is_not_accepted_is_called_so(
    attach: Attach, lines: Lines, server: SecuredZooKeeper
) -> None:
    """For instance a scheme that the server does not know."""
    recorder = attach(server.address, Security(authorization={"ensemble-of-ours": Secret("orders")}))
    recorder.wait(lambda: bool(lines()), 20)
    assert "authentication failed: the server does not accept zookeeper.authorization.ensemble-of-ours" in lines()[0]


# -- not a matter of security, though it looks like one ----------------------------------------------------------------


def test_a_server_without_a_quorum_is_called_so(
    attach: Attach,
    lines: Lines,
    eventually: Callable[[Callable[[], bool]], bool],
    tmp_path: Path,
    flink_2_home: Path,
    java: Path,
) -> None:
    """It hangs up as one does that expects TLS; asked in plain, it says that it does not serve."""
    servers = "\n".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()}" for number in (1, 2, 3))
    alone = Member(1, servers, tmp_path, flink_2_home, java)
    alone.launch()
    try:
        assert eventually(lambda: "not currently serving" in alone.says("srvr"))
        assert (
            reason(attach, lines, alone.address, PLAIN)
            == "the server does not serve requests: check that the ensemble has a quorum"
        )
    finally:
        alone.kill()
