"""Archives of the classes that Flink and its ZooKeeper load (Java's class data sharing): with them a lab starts in less CPU time.

Without them all is the same, and slower.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unittest import mock

from tests.lab import managers, zookeeper
from tests.lab.distribution import flink_home
from tests.lab.flink import Lab
from tests.lab.java import class_archive, java_command

_END_SECONDS: Final = 120.0
"""A JVM that ends writes its archive first: that takes seconds."""


def archive_classes(version: str, progress: Callable[[str], None]) -> None:
    """Make the archives for that Flink version if there are none: each JVM of a cluster that runs a job writes one at its end.

    Raises LabError.
    """
    home = flink_home(version, progress)
    if any(home.glob(class_archive(home, "*").name)):
        return
    progress(f"archiving the classes of Flink {version}")
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        staging = Path(folder)

        def archiving(
            java: Path, home: Path, folder: Path, heap: int, main: str, *arguments: str, log: Path
        ) -> list[str]:
            program, *options = java_command(java, home, folder, heap, main, *arguments, log=log)
            archive = staging / class_archive(home, main).name
            return [program, f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", *options]

        with (
            mock.patch.object(managers, "java_command", archiving),
            mock.patch.object(zookeeper, "java_command", archiving),
            Lab(staging / "lab", version) as lab,
        ):
            lab.start(jobmanagers=1)
            lab.submit_job()
            for server in (lab.taskmanager, *lab.jobmanagers, lab.zookeeper):
                server.terminate()
                server.wait(_END_SECONDS)
        for archive in staging.glob("*.jsa"):
            archive.rename(home / archive.name)
