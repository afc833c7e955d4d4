"""A job's program that fills the JobManager's heap."""

import subprocess
import zipfile
from pathlib import Path

from sidecar.lab.java import find_java

_SOURCE = Path(__file__).with_name("HeapFiller.java")


def heap_filler(folder: Path) -> Path:
    """Its jar, made in `folder`. Needs a JDK: a JRE has no `javac`."""
    javac = find_java().resolve().with_name("javac")
    subprocess.run([javac, "--release", "11", "-d", folder, _SOURCE], check=True, timeout=120)
    jar = folder / f"{_SOURCE.stem}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nMain-Class: {_SOURCE.stem}\n\n")
        archive.write(folder / f"{_SOURCE.stem}.class", f"{_SOURCE.stem}.class")
    return jar
