"""Which documents of silences a configuration has."""

import pytest
from msgspec.structs import replace

from sidecar.core.policy.policy import ALL_FOUND
from sidecar.settings import FinderSettings, load
from tests.settings.conftest import Write

_RECEIVER = 'receivers: [{name: ops, urls: ["json://ops"]}]\n'
_TWO = "clusters: [{zookeeper: {quorum: zk, cluster_id: a}}, {zookeeper: {quorum: zk, cluster_id: b}}]\n"


@pytest.mark.parametrize(
    ("text", "documents", "read"),
    [
        (f"zookeeper: {{quorum: zk}}\n{_RECEIVER}", {"default"}, True),
        (_TWO + _RECEIVER, {"a", "b"}, True),
        ("zookeeper: {quorum: zk}\n", {"default"}, False),
        (f"zookeeper: {{quorum: zk}}\nledger: {{mode: local}}\n{_RECEIVER}", set(), True),
    ],
    ids=["one cluster", "each of several", "no receivers", "nothing is shared"],
)
def test_each_cluster_has_a_document(text: str, documents: set[str], read: bool, write: Write) -> None:
    """The sidecar reads them if it notifies anybody."""
    settings = load(write(text), {})
    assert settings.silence_documents == documents
    assert settings.policy().silence_documents == (documents if read else set())


def test_found_clusters_share_one(write: Write) -> None:
    """In the namespace of their sidecars."""
    settings = load(write(f"zookeeper: {{quorum: zk}}\n{_RECEIVER}"), {})
    finding = replace(settings, clusters=(), finder=FinderSettings("a=b", None, "here"))
    assert finding.silence_documents == {ALL_FOUND}
    assert finding.policy().silences_of("orders/session") == ALL_FOUND
