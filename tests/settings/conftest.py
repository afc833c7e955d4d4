"""A machine that says nothing of its own about Flink or us."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.settings import ClusterSettings, ZooKeeperSettings

Write = Callable[[str], Path]


def in_zookeeper(cluster: ClusterSettings) -> ZooKeeperSettings:
    """The cluster, which must be one in ZooKeeper."""
    assert isinstance(cluster, ZooKeeperSettings)
    return cluster


def with_flinks_defaults(quorum: str, flink_session_timeout: float | None = None) -> ZooKeeperSettings:
    """A cluster there, everything else as in a Flink that was given nothing more; its session timeout is known from its configuration."""
    return ZooKeeperSettings(
        quorum=quorum,
        namespace="/flink/default",
        cluster_id="default",
        session_timeout=60.0,
        connection_timeout=15.0,
        tolerate_suspended=False,
        flink_session_timeout=flink_session_timeout,
    )


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("FLINK_", "POD_", "KUBE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sidecar.settings.cluster.kubernetes.SERVICE_ACCOUNT", tmp_path / "serviceaccount")
    monkeypatch.setattr("sidecar.settings.cluster.cluster.IMAGE_CONF_DIR", tmp_path / "opt-flink-conf")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a configuration file."""

    def write(text: str) -> Path:
        path = tmp_path / "sidecar.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def conf_dir(tmp_path: Path) -> Path:
    """The folder of a Flink with ZooKeeper."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "high-availability:\n  type: zookeeper\n  cluster-id: /orders\n  zookeeper: {quorum: 'zk:2181'}\n"
    )
    return folder
