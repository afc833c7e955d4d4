"""Receivers that accept everything, and processes to capture."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sidecar.host.processes import FlinkProcess
from tests.kit.receivers import mailbox, webhook
from tests.lab.processes import free_port
from tests.lab.receivers import HttpReceiver, MailReceiver
from tests.sinks.running import Eventually, Run, flink_process


@pytest.fixture
def web() -> Iterator[HttpReceiver]:
    """A webhook that accepts everything."""
    with webhook() as receiver:
        yield receiver


@pytest.fixture
def mail() -> Iterator[MailReceiver]:
    """A mail server that accepts everything."""
    with mailbox() as receiver:
        yield receiver


@pytest.fixture
def jvm(java: Path, tmp_path: Path, eventually: Eventually) -> Iterator[Run]:
    """Starts a small JVM of nobody's, with these flags; `user` may run it. What it does takes no class but Java's own."""
    with ExitStack() as cleanup:

        def start(*flags: str, user: int | None = None) -> FlinkProcess:
            port = free_port()
            command = [str(java), "-XX:+UseSerialGC", "-Xmx16m", *flags, "-m", "java.rmi/sun.rmi.registry.RegistryImpl"]
            folder = "/" if user else tmp_path  # ours may be closed to that user
            child = subprocess.Popen(
                [*command, str(port)], cwd=folder, user=user, group=user, stderr=subprocess.DEVNULL
            )
            cleanup.callback(child.wait, 10)
            cleanup.callback(child.kill)
            left_behind = Path(f"/tmp/.java_pid{child.pid}")  # noqa: S108  where HotSpot has it
            left_behind.unlink(missing_ok=True)  # by a JVM of this number that was killed, long ago

            def serves() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            assert eventually(serves)
            return flink_process(child.pid)

        yield start


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Run]:
    """Starts a Python with this file and these arguments; it has said "ready" when this returns."""
    with ExitStack() as cleanup:

        def start(code: str, *arguments: str, name: str = "program.py", argv0: str = sys.executable) -> FlinkProcess:
            program = tmp_path / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(code)
            command = [argv0, *(arguments or [str(program)])]
            child = subprocess.Popen(
                command,
                executable=sys.executable,
                cwd=tmp_path,
                env=os.environ | {"PYTHONHOME": sys.base_prefix},  # which it cannot find by another name
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            cleanup.enter_context(child)
            cleanup.callback(os.killpg, child.pid, signal.SIGKILL)
            assert child.stdout
            assert child.stdout.readline() == b"ready\n"
            return flink_process(child.pid, is_java=False)

        yield start
