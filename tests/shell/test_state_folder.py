"""The state folder: who may read it, what if it is somebody else's, and two processes that would use it at once."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.app.history import records as remembered
from sidecar.core.state import State
from sidecar.journal import FILE, Journal, JournalError
from tests.kit.spools import journal_with, opened, records, run_and_stop, spool
from tests.shell.test_journal import kept, lines, scene

NOBODY = 65534


@pytest.fixture(params=[0o000, 0o022, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that everybody can look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}


def as_nobody(code: str) -> str:
    """What the code prints that a user runs who owns nothing; without root, whoever runs the tests."""
    become = f"if os.geteuid() == 0: os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)"
    imports = (
        "import os, logging\nfrom sidecar.app import history\nfrom sidecar.core.state import State\n"
        "from sidecar.journal import Journal"
    )
    script = f"{imports}\nlogging.basicConfig(format='%(message)s')\n{become}\n{code}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.usefixtures("umask")
def test_the_journal_is_for_its_owner_alone(tmp_path: Path) -> None:
    """With all files that belong to it, whatever the umask."""
    state, some = scene()
    journal = opened(tmp_path)
    assert journal.commit(state, some)
    found = modes(tmp_path)
    journal.close()
    assert found == dict.fromkeys([FILE, f"{FILE}-wal", f"{FILE}-shm", "lock"], 0o600)


def test_a_journal_that_everybody_could_read_is_closed_to_them(tmp_path: Path) -> None:
    """One that an earlier version has made."""
    state, some = scene()
    journal = opened(tmp_path)
    assert journal.commit(state, some)
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"{FILE}{suffix}").chmod(0o666)
    journal.close()
    (tmp_path / FILE).chmod(0o644)
    again = opened(tmp_path)
    again.commit(State(), some)
    assert set(modes(tmp_path).values()) == {0o600}
    again.close()


def test_a_link_is_no_journal(tmp_path: Path) -> None:
    """Somebody else can write to the folder: what the link names is not touched."""
    (tmp_path / "state").mkdir()
    (tmp_path / "other").write_text("precious")
    (tmp_path / "state" / FILE).symlink_to(tmp_path / "other")
    journal = opened(tmp_path / "state")
    assert journal.problem is not None
    assert not journal.commit(*scene())
    journal.close()
    assert (tmp_path / "other").read_text() == "precious"


def test_segments_are_for_whoever_ingests_them(tmp_path: Path) -> None:
    """Another user may: the umask alone says who cannot."""
    journal_with(tmp_path, records())
    before = os.umask(0o027)
    try:
        run_and_stop(spool(tmp_path))
    finally:
        os.umask(before)
    assert set(modes(tmp_path / "spool" / "jm-0").values()) == {0o640}


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o000])
def test_a_state_folder_of_another_user_costs_the_journal_and_nothing_else(public_folder: Path, mode: int) -> None:
    """It goes on without a journal, and says why in one line; records wait in memory."""
    folder = public_folder / "state"
    journal_with(folder, records())
    folder.chmod(mode if os.geteuid() == 0 else 0o000)
    said = as_nobody(f"""
from pathlib import Path
journal = Journal(Path({str(folder)!r}))
assert journal.claim()
journal.open()
assert journal.problem
assert not journal.commit(State(), [])
journal.close()
""")
    folder.chmod(0o755)
    assert "Traceback" not in said
    assert "make the folder writable for the user that the sidecar runs as" in said


def test_history_in_a_folder_of_another_user_is_one_line(public_folder: Path) -> None:
    """`timeline` and `explain` say who may read it."""
    folder = public_folder / "state"
    journal_with(folder, records())
    folder.chmod(0o700 if os.geteuid() == 0 else 0o000)
    said = as_nobody(f"""
from pathlib import Path
try:
    list(history.records(Path({str(folder)!r})))
except Exception as error:
    print(type(error).__name__, error)
""")
    folder.chmod(0o755)
    assert said.startswith("JournalError cannot read")


def test_two_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second one knows by whom it is used, writes nothing, and goes on when the first one has ended."""
    state, some = scene()
    first, second = Journal(tmp_path), Journal(tmp_path)
    assert first.claim()
    first.open()
    assert not second.claim()
    assert second.claimed_by().startswith(f"process {os.getpid()} on ")
    second.open()
    assert second.problem is not None
    assert "in use by" in second.problem
    assert not second.commit(state, some)
    assert first.commit(State(), some[:1])
    first.close()
    assert second.claim()
    assert second.commit(state, [])
    second.close()
    assert len(lines(tmp_path)) == len(some)
    assert kept(state).outbox


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    """kill -9: the kernel has freed it."""
    code = (
        "import sys, time; from pathlib import Path; from sidecar.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1])); assert journal.claim(); print('holds it', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline()
        journal = Journal(tmp_path)
        assert not journal.claim()
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert journal.claim()
    journal.close()


def test_a_history_is_read_while_a_sidecar_holds_the_folder(tmp_path: Path) -> None:
    """The lock is for writers of state: whoever reads does not need it."""
    journal_with(tmp_path, records())
    journal = Journal(tmp_path)
    assert journal.claim()
    assert len(list(remembered(tmp_path))) == len(records())
    journal.close()
    with pytest.raises(JournalError):
        list(remembered(tmp_path / "nowhere"))
