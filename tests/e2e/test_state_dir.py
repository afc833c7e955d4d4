"""Two sidecars on one state_dir: the second waits for the first to end, and refuses when it does not."""

from pathlib import Path

from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.processes import free_port


def sidecar(folder: Path) -> Sidecar:
    """Of a cluster in a ZooKeeper that is not there: it runs all the same."""
    return Sidecar(folder, f"zookeeper: {{quorum: '127.0.0.1:{free_port()}', cluster_id: /default}}", [])


def on_one_state_dir(folder: Path) -> tuple[Sidecar, Sidecar]:
    """Two sidecars that are to use the same state folder; neither is started."""
    first, second = sidecar(folder / "a"), sidecar(folder / "b")
    second.config.write_text(second.config.read_text().replace(str(second.state), str(first.state)))
    return first, second


def test_the_second_sidecar_waits_and_then_takes_over(tmp_path: Path) -> None:
    """As in the restart of a pod, where the old process is still about to end."""
    first, second = on_one_state_dir(tmp_path)
    first.start()
    wait_for("the first one", lambda: first.get("/livez")[0] == 200)
    try:
        second.start()
        wait_for("that it waits", lambda: "is in use by process" in second.log.read_text())
        assert second.get("/livez")[0] == 0
        assert first.stop() == 0
        wait_for("the second one", lambda: second.get("/livez")[0] == 200)
    finally:
        first.kill()
        assert second.stop() == 0


def test_the_second_sidecar_refuses_when_the_first_goes_on(tmp_path: Path) -> None:
    """With 1 and one clear line; the first one is not disturbed."""
    first, second = on_one_state_dir(tmp_path)
    first.start()
    try:
        wait_for("the first one", lambda: first.get("/livez")[0] == 200)
        second.start()
        assert second.process is not None
        assert second.process.wait(timeout=120) == 1
        line = second.log.read_text().splitlines()[-1]
        assert line.startswith(f"flink-ha-sidecar: cannot use state_dir {first.state}: it is in use by process ")
        assert line.endswith("stop that sidecar, or use another state_dir")
        assert first.get("/livez")[0] == 200
    finally:
        assert first.stop() == 0


def test_a_sidecar_that_waits_can_be_ended(tmp_path: Path) -> None:
    """SIGTERM while it waits: 0, at once."""
    first, second = on_one_state_dir(tmp_path)
    first.start()
    try:
        wait_for("the first one", lambda: first.get("/livez")[0] == 200)
        second.start()
        wait_for("that it waits", lambda: "is in use by process" in second.log.read_text())
        assert second.stop() == 0
    finally:
        assert first.stop() == 0
