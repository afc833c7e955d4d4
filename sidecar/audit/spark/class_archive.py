"""The archive of the classes that Spark loads (Java's class data sharing): with it, a JVM starts in half the CPU time.

`audit warm-up` makes it. It is valid for one Java and for Spark's jars as they are, which the JVM checks: with any other, it starts as
without an archive.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sidecar.runtime.folders import cache_folder

WRITE_SECONDS: Final = 900.0
"""A JVM needs about twenty seconds of CPU time to write the archive when it ends: much longer where many processes share few cores."""
_SILENT: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def places() -> Sequence[Path]:
    """Where the archive may be, the preferred one first: in the Python environment that Spark is installed in, or in the user's cache."""
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    return (
        Path(sys.prefix) / "share" / "flink-ha-sidecar" / "spark-classes.jsa",
        cache_folder() / f"spark-classes-{environment}.jsa",
    )


def options() -> Sequence[str]:
    """The options of a JVM that uses the archive, if there is one. The newer one, if there are two: an older one can be out of date."""
    existing = [place for place in places() if place.is_file()]
    return reading(max(existing, key=lambda place: place.stat().st_mtime)) if existing else ()


def reading(archive: Path) -> Sequence[str]:
    """The options of a JVM that uses this archive."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT)


def writing(archive: Path) -> Sequence[str]:
    """The options of a JVM that writes this archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)
