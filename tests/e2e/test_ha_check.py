"""`ha check`: what it prints, and its exit status."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from sidecar.core.ha.flink_checks import FLINK_CHECKS
from sidecar.core.ha.zookeeper_checks import ZOOKEEPER_CHECKS
from tests.kit.commands_scene import JobManagers
from tests.kit.sidecar_process import command
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper

FLINK: Final = """\
high-availability:
  type: zookeeper
  storageDir: file:///tmp/not-shared
  cluster-id: payments
  zookeeper: {{quorum: '{address}'}}
s3.secret-key: not-to-be-shown
"""


@pytest.fixture
def config(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Path]:
    """Two clusters: `orders` with a standby and without Flink's configuration, `payments` with it and without a standby."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(FLINK.format(address=zookeeper.address))
    (tmp_path / "conf" / "masters").write_text("jm-a:8081\njm-b:8081  # the standby\n\n")
    file = tmp_path / "sidecar.yaml"
    file.write_text(f"""\
clusters:
  - zookeeper: {{quorum: '{zookeeper.address}', cluster_id: orders}}
  - flink_conf_dir: {tmp_path / "conf"}
receivers: [{{name: ops, urls: ['${{NOT_SET_HERE}}']}}]
""")
    running = [JobManagers(zookeeper.address, "orders", "ab"), JobManagers(zookeeper.address, "payments", "a")]
    yield file
    for each in running:
        each.stop()


def document(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and clusters."""
    ended = command("ha", "check", *arguments, "-o", "json")
    assert ended.stderr == ""
    return ended.returncode, json.loads(ended.stdout)["clusters"]


@pytest.mark.covers("command:ha check")
def test_each_cluster_s_risks_come_first(config: Path) -> None:
    """In the order of the configuration, with what to do; 1: there is a risk. No secret is asked for, and none shown."""
    ended = command("ha", "check", "--config", str(config))
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "not-to-be-shown" not in ended.stdout
    heads = [line for line in ended.stdout.splitlines() if not line.startswith(" ")]
    assert [head.partition(":")[0] for head in heads] == ["orders", "payments"]
    assert heads[0].startswith("orders: 2 risks, 7 unknown, 8 passed; /flink/orders in ZooKeeper 127.0.0.1:")
    orders, _, payments = ended.stdout.partition("\npayments: ")
    for block in (orders, payments):
        shown = [word for line in block.splitlines() if (word := line.split()[0]) in {"RISK", "UNKNOWN", "PASS"}]
        assert shown == sorted(shown, key=["RISK", "UNKNOWN", "PASS"].index)
    lines = payments.splitlines()
    at = lines.index("  RISK    standby: one JobManager contends for leadership")
    assert lines[at + 1].startswith("          start a second JobManager: ")
    assert "  RISK    masters: the file masters lists 2 JobManagers, and 1 contend for leadership" in lines
    assert (
        "  RISK    storage_dir: high-availability.storageDir is a folder of this machine: file:///tmp/not-shared"
        in lines
    )


def test_json_and_yaml_have_every_check(config: Path) -> None:
    """Each with its verdict, text and advice, which a risk alone has."""
    status, (orders, payments) = document("--config", str(config))
    assert status == 1
    assert [check["check"] for check in payments["checks"]] == [
        *ZOOKEEPER_CHECKS,
        *(name for name in FLINK_CHECKS if name not in {"yarn_attempts", "checkpoint_dir"}),
    ]
    assert {check["check"] for check in orders["checks"]} == {*ZOOKEEPER_CHECKS, *FLINK_CHECKS} - {"masters"}
    assert orders.keys() == {"cluster_id", "place", "checked_at", "checks"}
    for result in (*orders["checks"], *payments["checks"]):
        assert result.keys() == {"check", "verdict", "text", "advice"}
        assert bool(result["advice"]) == (result["verdict"] == "RISK")
    printed = YAML(typ="safe").load(command("ha", "check", "--config", str(config), "-o", "yaml").stdout)
    assert [cluster["cluster_id"] for cluster in printed["clusters"]] == ["orders", "payments"]


def test_what_cannot_be_read_is_not_passed() -> None:
    """A store that nobody reaches has no risk that is known: 3."""
    address = f"127.0.0.1:{free_port()}"
    status, (cluster,) = document("--zookeeper", address, "--cluster-id", "orders")
    assert status == 3
    assert {check["check"] for check in cluster["checks"] if check["verdict"] != "UNKNOWN"} == {"shared_cluster_id"}
    servers = next(check["text"] for check in cluster["checks"] if check["check"] == "zookeeper_servers")
    assert servers == f"no server opened a session for this sidecar: {address} (Connection refused)"


def test_wrong_usage_is_one_line(config: Path, zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """2: an unknown option, a wrong address, a folder that does not exist, and clusters that are to be found."""
    finding_file = tmp_path / "found.yaml"
    finding_file.write_text(f"zookeeper: {{quorum: '{zookeeper.address}', clusters: all}}\n")
    for arguments, words in (
        (["--zookeeper", "300.1.1.1:2181"], "300.1.1.1 is no IP address"),
        (["--flink-conf", str(tmp_path / "nothing")], "there is no folder"),
        (["--config", str(finding_file)], "cannot check the clusters that are found in "),
    ):
        ended = command("ha", "check", *arguments)
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1), ended.stderr
        assert words in ended.stderr
    assert command("ha", "check", "--config", str(config), "-o", "wide").returncode == 2
    assert command("ha").returncode == 2
