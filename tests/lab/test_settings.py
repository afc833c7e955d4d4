"""The configuration folder is what a user of that Flink version has."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.lab.settings import TASK_MANAGER_HEAP_MEGABYTES, write_conf_dir

DATA = Path("/a folder/data")


def _write(conf_dir: Path, version: tuple[int, int]) -> None:
    write_conf_dir(conf_dir, version, "127.0.0.1:2181", DATA, timedelta(seconds=5))


def _flat(conf_dir: Path) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in (conf_dir / "flink-conf.yaml").read_text().splitlines())


def test_flink_2_has_a_nested_config_yaml(tmp_path: Path) -> None:
    """Standard YAML in config.yaml, with a unit at the timeout, and no other file."""
    _write(tmp_path, (2, 3))
    assert [file.name for file in tmp_path.iterdir()] == ["config.yaml"]
    config: dict[str, Any] = YAML(typ="safe").load(tmp_path / "config.yaml")
    assert config["high-availability"] == {
        "type": "zookeeper",
        "storageDir": "file:///a folder/data/ha",
        "cluster-id": "/lab",
        "zookeeper": {"quorum": "127.0.0.1:2181", "path": {"root": "/flink"}, "client": {"session-timeout": "5000 ms"}},
    }
    assert config["execution"] == {"checkpointing": {"dir": "file:///a folder/data/checkpoints"}}
    assert config["restart-strategy"] == {
        "type": "fixed-delay",
        "fixed-delay": {"attempts": 2147483647, "delay": "200 ms"},
    }


@pytest.mark.parametrize(
    ("version", "ha_key", "restart_key"),
    [
        ((1, 15), "high-availability", "restart-strategy"),
        ((1, 17), "high-availability.type", "restart-strategy"),
        ((1, 20), "high-availability.type", "restart-strategy.type"),
    ],
)
def test_flink_1_has_a_flat_flink_conf(version: tuple[int, int], ha_key: str, restart_key: str, tmp_path: Path) -> None:
    """One `key: value` a line in flink-conf.yaml, with the keys that the version knows and milliseconds without a unit."""
    _write(tmp_path, version)
    assert [file.name for file in tmp_path.iterdir()] == ["flink-conf.yaml"]
    config = _flat(tmp_path)
    assert {
        key: value
        for key, value in config.items()
        if key.startswith(("high-availability", "state.", "restart-strategy"))
    } == {
        ha_key: "zookeeper",
        "high-availability.storageDir": "file:///a folder/data/ha",
        "high-availability.cluster-id": "/lab",
        "high-availability.zookeeper.quorum": "127.0.0.1:2181",
        "high-availability.zookeeper.path.root": "/flink",
        "high-availability.zookeeper.client.session-timeout": "5000",
        "state.checkpoints.dir": "file:///a folder/data/checkpoints",
        restart_key: "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2147483647",
        "restart-strategy.fixed-delay.delay": "200 ms",
    }


def test_everything_stays_on_this_machine(tmp_path: Path) -> None:
    """Every address and every host in the configuration is 127.0.0.1."""
    _write(tmp_path, (1, 20))
    addresses = {key: value for key, value in _flat(tmp_path).items() if key.endswith(("address", "host"))}
    assert set(addresses) == {
        *("jobmanager.rpc.address", "jobmanager.bind-host", "rest.address", "rest.bind-address"),
        *("taskmanager.host", "taskmanager.bind-host"),
    }
    assert set(addresses.values()) == {"127.0.0.1"}


def test_the_task_manager_gets_the_heap_it_is_configured_for(tmp_path: Path) -> None:
    """The JVM's heap is the sum of the two heaps in the configuration."""
    _write(tmp_path, (1, 20))
    config = _flat(tmp_path)
    heaps = [config[f"taskmanager.memory.{part}.heap.size"] for part in ("framework", "task")]
    assert sum(int(heap.removesuffix("m")) for heap in heaps) == TASK_MANAGER_HEAP_MEGABYTES
