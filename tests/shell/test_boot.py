"""A sidecar that starts notices that its machine was started again."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.app import this_machine
from sidecar.app.this_machine import restarted_at
from sidecar.core.moment import SECOND, Moment
from sidecar.settings.model import OwnPod

POD = OwnPod("jm-0", "10.0.0.1", "uid-1")
NOW = Moment(0, time.time_ns() // 1000)
LONG_AGO = Moment(0, 0)


def boots(monkeypatch: pytest.MonkeyPatch, folder: Path, boot_id: str, machine: str = "m-1") -> None:
    """From now on it is this start of this machine."""
    for name, text in (("_BOOT_ID", boot_id), ("_MACHINE_ID", machine)):
        (folder / name).write_text(f"{text}\n")
        monkeypatch.setattr(this_machine, name, folder / name)


def test_another_boot_id_is_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: the next start of the sidecar is in the same boot. It was when the kernel started."""
    boots(monkeypatch, tmp_path, "b-1")
    assert restarted_at(tmp_path, None, LONG_AGO, NOW) is None
    assert restarted_at(tmp_path, None, LONG_AGO, NOW) is None
    boots(monkeypatch, tmp_path, "b-2")
    booted_at = restarted_at(tmp_path, None, LONG_AGO, NOW)
    assert booted_at
    assert abs(booted_at - (NOW.wall - time.clock_gettime(time.CLOCK_BOOTTIME) * SECOND)) < SECOND
    assert restarted_at(tmp_path, None, LONG_AGO, NOW) is None


def test_the_same_folder_on_another_machine_is_no_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in another pod, as with a volume that moves."""
    boots(monkeypatch, tmp_path, "b-1")
    restarted_at(tmp_path, None, LONG_AGO, NOW)
    boots(monkeypatch, tmp_path, "b-2", machine="m-2")
    assert restarted_at(tmp_path, None, LONG_AGO, NOW) is None
    assert restarted_at(tmp_path, POD, LONG_AGO, NOW) is None
    boots(monkeypatch, tmp_path, "b-3")
    assert restarted_at(tmp_path, replace(POD, uid="uid-2"), LONG_AGO, NOW) is None
    boots(monkeypatch, tmp_path, "b-4")
    assert restarted_at(tmp_path, replace(POD, uid="uid-2"), LONG_AGO, NOW)


def test_a_sidecar_that_ran_since_then_contradicts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where machines share an id, and a journal. Without a journal nothing says that it ran before."""
    for number, alive in enumerate((NOW, None)):
        boots(monkeypatch, tmp_path, f"b-{number}")
        restarted_at(tmp_path, None, LONG_AGO, NOW)
        boots(monkeypatch, tmp_path, f"c-{number}")
        assert restarted_at(tmp_path, None, alive, NOW) is None


@pytest.mark.parametrize("machine", ["", None])
def test_a_machine_without_an_id_is_not_recognised(
    machine: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in most images of containers."""
    for boot_id in ("b-1", "b-2"):
        boots(monkeypatch, tmp_path, boot_id, machine or "")
        if machine is None:
            (tmp_path / "_MACHINE_ID").unlink()
        assert restarted_at(tmp_path, None, LONG_AGO, NOW) is None
