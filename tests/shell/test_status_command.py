"""What `status` waits for, and what its table leaves out."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.app import status_reader
from sidecar.cli import options
from sidecar.cli import status_commands as status_command
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.rebase import rebased
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import status as status_of
from sidecar.runtime.clock import Clock
from sidecar.settings import load
from tests.kit.cluster import A
from tests.kit.core_sidecar import Sidecar, watching
from tests.kit.fake_flink import Flink
from tests.kit.sidecar_process import command
from tests.kit.spools import opened
from tests.kit.znodes import ZNodes


def test_a_store_that_the_running_sidecar_cannot_read_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar knows since when, and who led last."""
    monkeypatch.setattr(status_reader, "ALONE_SECONDS", 0.2)
    _, sidecar = watching()
    state = sidecar.is_cut_off().waits(60).state
    now = Clock()()
    journal = opened(tmp_path)
    assert journal.commit(replace(rebased(state, now.steady - sidecar.now), alive=now), [])
    journal.close()
    statuses = status_reader.statuses(load(None, {"zookeeper": "127.0.0.1:1", "state_dir": tmp_path}), 3600)
    try:
        answer = next(statuses)
    finally:
        statuses.close()
    (cluster,) = answer.clusters
    assert answer.status == "BLIND"
    assert cluster.sentence.startswith("cannot see it for ")
    assert cluster.sentence.endswith(", last known leader jm-a")


def test_jobs_without_a_leader_that_are_not_listed_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Forty of them, and one with a leader."""
    flink = Flink(ZNodes()).submit()
    for number in range(40):
        flink.submit(f"{number:032x}")
    flink.elect(A)
    sidecar = Sidecar(flink).connects()
    found = status_of(Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy), None)
    status_command._print(found, "text")  # white box: as the command prints it
    lines = capsys.readouterr().out.splitlines()
    assert "  and 20 more jobs without a leader (all: -o wide)" in lines
    assert "  and 1 job with a leader" in lines


def test_jobs_of_which_nothing_is_known_are_not_counted_as_without_a_leader(capsys: pytest.CaptureFixture[str]) -> None:
    """Their data is unreadable."""
    flink = Flink(ZNodes())
    for number in range(40):
        flink.znodes.write(flink.znodes.path(ComponentId(Component.JOB, f"{number:032x}")), b"unreadable", 7)
    sidecar = Sidecar(flink.elect(A)).connects()
    found = status_of(Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy), None)
    status_command._print(found, "text")  # white box: as the command prints it
    assert "  and 20 more jobs (all: -o wide)" in capsys.readouterr().out.splitlines()


def test_a_configuration_is_found_without_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the variable, else where a container has it."""
    file = tmp_path / "config.yaml"
    file.write_text("zookeeper: {quorum: zk}\nreceivers: 7\n")
    checked = command("config", "check", environment={options.CONFIG_VARIABLE: str(file)})
    assert checked.returncode == 2
    assert f"{file}:2: receivers: must be a list" in checked.stderr
    monkeypatch.delenv(options.CONFIG_VARIABLE, raising=False)
    monkeypatch.setattr(options, "DEFAULT_CONFIG", file)
    assert options._default_config() == file  # white box: the real place is not ours to write
    monkeypatch.setattr(options, "DEFAULT_CONFIG", tmp_path / "none")
    assert options._default_config() is None
