"""The ledger in a real ZooKeeper: where it stands, to whom it belongs, and what is reported where that cannot be."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from sidecar.drivers.zookeeper.security import Security
from sidecar.drivers.zookeeper.zookeeper_ledger import ROOT, ZooKeeperLedger
from sidecar.ports import LedgerStore, StoredDocument
from sidecar.settings import SaslSettings, Secret, TlsSettings
from tests.integration.ledgers import SECONDS, client, out_of_reach, put, refused
from tests.kit.certificates import Authority
from tests.kit.relay import Wire
from tests.kit.secured_zookeeper import PASSWORD, USER, SecuredZooKeeper
from tests.kit.waiting import wait_for
from tests.kit.zookeeper_ensemble import Member
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper

ALICE = Security(authorization={"digest": Secret("alice:hunter2")})
BOB = Security(authorization={"digest": Secret("bob:hunter3")})


@pytest.fixture
def chroot(shared_zookeeper: ZooKeeper) -> str:
    """A quorum with a root of its own, in which nothing is but Flink's namespace."""
    path = f"/chroot-{uuid4()}"
    with client(shared_zookeeper.address) as admin:
        admin.ensure_path(f"{path}/flink/demo/leader")
    return shared_zookeeper.address + path


@contextmanager
def ledger(quorum: str, security: Security, namespace: str = "/flink/demo") -> Iterator[LedgerStore]:
    store = ZooKeeperLedger(quorum, namespace, security=security, seconds=SECONDS)
    try:
        yield store
    finally:
        store.stop()


def test_with_credentials_it_is_ours_alone(chroot: str) -> None:
    """Nobody without them can read, change or delete it; another cluster, with others, keeps its own below the same root."""
    with ledger(chroot, ALICE) as ours, ledger(chroot, ALICE) as same, client(chroot) as stranger:
        document = put(ours, b"ours")
        assert same.read() == document
        path = f"{ROOT}/flink/demo/ledger"
        with client(chroot, ("digest", "alice:hunter2")) as alice:
            assert alice.get_acls(path)[0] == [make_digest_acl("alice", "hunter2", all=True)]
        with ledger(chroot, Security()) as nobody, ledger(chroot, BOB) as somebody:
            for store in (nobody, somebody):
                assert "no permission: it belongs to other credentials" in refused(store.read)
                act = partial(store.write, b"x", document)
                assert "no permission: it belongs to other credentials" in refused(act)
        with ledger(chroot, BOB, "/flink/other") as other:
            assert put(other, b"theirs") == other.read()
        with pytest.raises(NoAuthError):
            stranger.delete(path)
        assert ours.read() == document


def test_without_credentials_it_stands_beside_flinks_namespace(chroot: str) -> None:
    """Below our own root, open to all; nothing was written below Flink's."""
    with ledger(chroot, Security()) as store, client(chroot) as admin:
        before = admin.get("/flink/demo")[1], admin.get("/flink/demo/leader")[1]
        put(store, b"1")
        assert sorted(admin.get_children("/")) == ["flink", "flink-ha-sidecar"]
        assert (admin.get("/flink/demo")[1], admin.get("/flink/demo/leader")[1]) == before
        assert admin.get(f"{ROOT}/flink/demo/ledger")[0] == b"1"


@pytest.mark.parametrize("namespace", ["/flink-ha-sidecar", "/flink-ha-sidecar/default"])
def test_it_never_stands_where_flink_is(chroot: str, namespace: str) -> None:
    """Where Flink's root is ours, there is no ledger, and the line says what to do."""
    with ledger(chroot, Security(), namespace) as store:
        for act in (store.read, lambda: store.write(b"x", StoredDocument())):
            assert "Flink's root must not be /flink-ha-sidecar or below it" in refused(act)


def test_where_we_may_not_create_it_the_root_is_asked_for(chroot: str) -> None:
    """A line says what to make; made by somebody who lets us create below it, it is enough."""
    with ledger(chroot, ALICE) as store, client(chroot, ("digest", "admin:hunter4")) as admin:
        admin.set_acls("/", [make_digest_acl("admin", "hunter4", all=True)])
        assert f"no permission to create {ROOT}: create {ROOT} with the permission to create below it" in refused(
            lambda: store.write(b"1", StoredDocument())
        )
        admin.create(ROOT)
        assert put(store, b"1") == store.read()


def test_a_chroot_that_does_not_exist_is_named(shared_zookeeper: ZooKeeper) -> None:
    """Flink would not work there either; nobody makes it by the way."""
    with ledger(f"{shared_zookeeper.address}/nowhere", Security()) as store:
        assert store.read() == StoredDocument()
        line = out_of_reach(lambda: store.write(b"1", StoredDocument()))
        assert f"the chroot of {shared_zookeeper.address}/nowhere does not exist" in line


def test_it_is_kept_over_tls_by_whom_sasl_knows(tmp_path: Path, flink_2_home: Path, java: Path) -> None:
    """With TLS and SASL as Flink's; who comes without SASL cannot read it, and a wrong password or a plain connection is reported."""
    authority = Authority(tmp_path / "authority")
    identity = authority.issue("server", "IP:127.0.0.1")
    server = SecuredZooKeeper(tmp_path, flink_2_home, java, authority, identity, config="ssl.clientAuth=none\n")
    server.start()
    try:
        tls = TlsSettings(authority.ca, None, None, None)
        with ledger(server.secure_address, Security(tls, SaslSettings(USER, Secret(PASSWORD)))) as store:
            document = put(store, b"1")
            assert store.read() == document
        with ledger(server.secure_address, Security(tls)) as stranger:
            assert "no permission" in refused(stranger.read)
        with ledger(server.secure_address, Security(tls, SaslSettings(USER, Secret("hunter5")))) as wrong:
            assert "authentication failed" in out_of_reach(wrong.read)
        with ledger(server.secure_address, Security()) as plain:
            assert "the server expects TLS on this port" in out_of_reach(plain.read)
    finally:
        server.kill()


def test_an_ensemble_without_a_quorum_is_said(tmp_path: Path, flink_2_home: Path, java: Path) -> None:
    """Its members listen, and serve nobody."""
    servers = "\n".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()}" for number in (1, 2, 3))
    member = Member(1, servers, tmp_path, flink_2_home, java)
    member.launch()
    try:
        wait_for("an answer", lambda: "not currently serving" in member.says("srvr"))
        with ledger(member.address, Security()) as store:
            assert "check that the ensemble has a quorum" in out_of_reach(store.read)
    finally:
        member.kill()


def test_a_connection_that_nobody_missed_is_made_anew(shared_zookeeper: ZooKeeper) -> None:
    """It is half open, silent for ever: the next write is answered on another one."""
    wire = Wire(shared_zookeeper.address)
    store = ZooKeeperLedger(wire.address, f"/test-{uuid4()}/demo", seconds=2 * SECONDS)
    document = put(store, b"1")
    wire.fall_silent()
    wire.speak_again()
    written = store.write(b"2", document)
    assert written is not None
    assert store.read() == written
    store.stop()
    wire.close()


def test_a_member_that_is_frozen_leaves_time_for_another(shared_zookeeper: ZooKeeper) -> None:
    """Whichever is tried first, each call is answered in time."""
    frozen = Wire(shared_zookeeper.address)
    frozen.fall_silent()
    quorum = f"{frozen.address},{shared_zookeeper.address}"
    store = ZooKeeperLedger(quorum, f"/test-{uuid4()}/demo", seconds=2 * SECONDS)
    for content in (b"1", b"2", b"3", b"4"):
        assert put(store, content) == store.read()
        store.rest()
    frozen.close()
