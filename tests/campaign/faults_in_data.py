"""Faults in what a sidecar reads and writes: its disk and journal, the ledger, what others write where leaders are."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Final

from tests.campaign.kinds import fail_over, kind, stop
from tests.campaign.scene import Scene, ZooKeeperScene, wait
from tests.campaign.watcher import Watcher

_GATHER_SECONDS: Final = 60.0
_PAGE_BYTES: Final = 4096
_STRANGER: Final = "somebody-else"

# -- the disk ----------------------------------------------------------------------------------------------------------


@kind(needs_small_disk=True)
def disk_full(scene: Scene) -> None:
    """No byte is left where the journal is, and Flink fails over; then there is room again."""
    watcher = scene.one()
    filler = watcher.state / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(_PAGE_BYTES))
        except OSError:
            pass
    fail_over(scene)
    scene.pause(1.0, 5.0)
    filler.unlink()


def _journal(watcher: Watcher) -> Path:
    return watcher.state / "journal.db"


def sealed(watcher: Watcher) -> str:
    """Wait until nothing waits for a segment: what a damaged journal takes with it is then nothing that was recorded."""
    return wait(lambda: "" if watcher.metric("flink_ha_spool_pending_records") == 0 else "not sealed", _GATHER_SECONDS)


@kind(loses_journal=True)
def journal_page_zeroed(scene: Scene) -> None:
    """A page in the middle of the journal is lost while nobody runs."""
    watcher = scene.one()
    sealed(watcher)
    stop(watcher, scene)
    size = _journal(watcher).stat().st_size
    page = scene.moments.randrange(1, max(2, size // _PAGE_BYTES))
    with _journal(watcher).open("r+b") as file:
        file.seek(page * _PAGE_BYTES)
        file.write(bytes(_PAGE_BYTES))
    watcher.start().wait_ready()
    fail_over(scene)


@kind(loses_journal=True)
def journal_truncated(scene: Scene) -> None:
    """The journal ends in the middle after kill -9."""
    watcher = scene.one()
    sealed(watcher)
    watcher.kill()
    os.truncate(_journal(watcher), _journal(watcher).stat().st_size // 2)
    watcher.start()
    fail_over(scene)


@kind(loses_journal=True)
def journal_restored(scene: Scene) -> None:
    """The state folder is set back to a copy that is older than what was sealed."""
    watcher = scene.one()
    sealed(watcher)
    stop(watcher, scene)
    copy = watcher.folder / "state-copy"
    shutil.copytree(watcher.state, copy)
    watcher.start().wait_ready()
    fail_over(scene)
    scene.wait_well()
    watcher.kill()
    for file in watcher.state.glob("journal.db*"):
        file.unlink()
    for file in copy.glob("journal.db*"):
        shutil.copy2(file, watcher.state)
    shutil.rmtree(copy)
    watcher.start().wait_ready()
    fail_over(scene)


@kind()
def spool_symlink(scene: Scene) -> None:
    """Somebody has laid links where the next segments are written aside: no other file is overwritten, and sealing goes on."""
    watcher = scene.one()
    sealed(watcher)
    spool = watcher.spool / watcher.name
    last = max((int(file.name[17:33]) for file in spool.glob("*.jsonl.gz")), default=0)
    other = watcher.folder / "other-file"
    other.write_text("somebody else's")
    for more in range(1, 60):
        (spool / f".{last + 1:016}-{last + more:016}.jsonl.gz.tmp").symlink_to(other)
    fail_over(scene)
    sealed(watcher)
    if other.read_text(errors="replace") != "somebody else's":
        scene.diary.note("overwritten", sidecar=watcher.name, file=other.name)
    for link in spool.glob(".*.tmp"):
        link.unlink()


# -- the ledger --------------------------------------------------------------------------------------------------------


@kind()
def ledger_deleted(scene: Scene) -> None:
    """The shared document is gone."""
    scene.write_document("ledger", None)
    fail_over(scene)


@kind()
def ledger_garbled(scene: Scene) -> None:
    """The shared document is no JSON, within a failover."""
    fail_over(scene)
    scene.write_document("ledger", scene.moments.randbytes(200).replace(b"\0", b"?"))
    fail_over(scene)


@kind()
def ledger_nested(scene: Scene) -> None:
    """The shared document is valid JSON, 1,200 lists deep."""
    nested = "[" * 1200 + "]" * 1200
    scene.write_document("ledger", f'{{"format":1,"entries":{{}},"more":{nested}}}'.encode())
    fail_over(scene)
    scene.pause(1.0, 4.0)


@kind()
def ledger_huge_times(scene: Scene) -> None:
    """Somebody has dated everything in the shared document far ahead."""
    document = _entries(scene)
    for entry in document["entries"].values():
        entry["changed_at"] = entry["at"] = 2**62
    scene.write_document("ledger", json.dumps(document).encode())
    fail_over(scene)


@kind()
def ledger_held(scene: Scene) -> None:
    """Somebody claims everything, and claims it anew, for longer than a claim may stand; then is gone."""
    until = time.monotonic() + scene.moments.uniform(4.0, 50.0)
    fail_over(scene)
    while time.monotonic() < until:
        document = _entries(scene)
        for entry in document["entries"].values():
            entry["claim"] = {"by": _STRANGER, "token": str(scene.moments.random()), "about": []}
        scene.write_document("ledger", json.dumps(document).encode())
        time.sleep(2.0)


def _entries(scene: Scene) -> dict[str, dict[str, dict[str, object]]]:
    """The shared document, and all that is in it. Where nobody can read it, an empty one."""
    try:
        found = json.loads(scene.read_document("ledger"))
        return found if isinstance(found.get("entries"), dict) else {"entries": {}}
    except ValueError:
        return {"entries": {}}


# -- what others write where leaders are -------------------------------------------------------------------------------


@kind()
def garbage(scene: Scene) -> None:
    """The dispatcher's leader is random bytes for a while: unreadable, which is not vacant."""
    scene.flink.spoil(scene.moments.randbytes(scene.moments.randrange(0, 400)))
    scene.pause(0.5, 8.0)
    scene.flink.mend()
    fail_over(scene)


@kind(stores=("zookeeper",))
def strange_nodes(scene: Scene) -> None:
    """Below the leaders' folder there is much that is no leader, and some that is none that can be read."""
    assert isinstance(scene, ZooKeeperScene)
    with scene.client() as client:
        names = [f"x{number}" for number in range(300)] + ["job-" + "zz" * 16, "\u202e", "a" * 300, "job-"]
        folders = [f"/flink/campaign/leader/{name}" for name in names]
        for folder in folders:
            client.ensure_path(folder)
        client.create(f"{folders[0]}/connection_info", b"\xac\xed\x00\x05")
        fail_over(scene)
        for folder in folders:
            client.delete(folder, recursive=True)
