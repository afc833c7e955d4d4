"""With several clusters, each line says of which one it is; with one, none does."""

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.core.policy.policy import Store
from tests.kit.core_sidecar import POLICY, Sidecar, watching
from tests.kit.observed_failovers import first_sight
from tests.kit.sidecar_process import command
from tests.kit.spools import opened
from tests.shell.test_loop import House, wait_until


def test_the_log_names_the_cluster_where_there_are_several(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What `run` logs of a leader, of a failover, of sight."""
    for number, stores in enumerate(({"default": Store.ZOOKEEPER}, {"default": Store.ZOOKEEPER, "b": Store.ZOOKEEPER})):
        caplog.clear()
        house = House(tmp_path / str(number), replace(POLICY, stores=stores))
        with caplog.at_level(logging.INFO, "sidecar.loop"):
            house.loop.start()
            house.bring(first_sight()[1:])
            wait_until(lambda: len([line for line in caplog.messages if "DISCOVERED" in line]) == 3)
        house.close()
        lines = [line for line in caplog.messages if "DISCOVERED" in line]
        assert [line.startswith("default: ") for line in lines] == [len(stores) > 1] * 3


def test_the_timeline_names_the_cluster_where_there_are_several(tmp_path: Path) -> None:
    """Also where the last records are all of one."""

    def timeline(sidecar: Sidecar, others: int) -> list[str]:
        folder = tmp_path / str(others)
        journal = opened(folder)
        earlier = [replace(record, id=f"{record.id}-b", cluster_id="b") for record in sidecar.records[:others]]
        assert journal.commit(sidecar.state, [*earlier, *sidecar.records])
        journal.close()
        return command("timeline", "--state-dir", str(folder), "--last", "2").stdout.splitlines()

    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(2)
    one, several = timeline(sidecar, 0), timeline(sidecar, 1)
    assert [line[27:].startswith(" default: ") for line in one] == [False, False]
    assert [line[27:].startswith(" default: ") for line in several] == [True, True]
