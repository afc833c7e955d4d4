"""What a program that a kubeconfig names finds in its environment."""

import json
from pathlib import Path

import pytest

from sidecar.drivers.kubernetes import Access
from sidecar.settings import load
from tests.kit.kubernetes_server import exec_credential, program


def test_a_kubeconfigs_program_gets_no_secret_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of receivers' URLs are withheld; all others, which it may need, are passed on."""
    secrets = {"CHAT_URL": "json://somebody:s3cret@127.0.0.1:1/", "CHAT_TOKEN": "s3cret2"}
    for name, value in {**secrets, "PLUGIN_REGION": "eu", "CLUSTER": "orders"}.items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "sidecar.yaml"
    config.write_text(
        "zookeeper: {quorum: 'zk:2181', cluster_id: '${CLUSTER}'}\n"
        "receivers: [{name: ops, urls: ['${CHAT_URL}', 'json://127.0.0.1/${CHAT_TOKEN}/$${PLUGIN_REGION}']}]\n"
    )
    load(config, {})
    (tmp_path / "answer").write_text(exec_credential("token"))
    user = program(f"env > '{tmp_path}/environment'; cat '{tmp_path}/answer'")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            }
        )
    )
    assert Access(kubeconfig).credentials().token == "token"
    passed = dict(line.partition("=")[::2] for line in (tmp_path / "environment").read_text().splitlines())
    assert secrets.keys().isdisjoint(passed)
    assert "s3cret" not in (tmp_path / "environment").read_text()
    assert (passed["PLUGIN_REGION"], passed["CLUSTER"]) == ("eu", "orders")
