"""Programs of jobs that harm the JobManager that runs them: `HeapFiller` and `Exit`."""

import subprocess
import zipfile
from pathlib import Path

from tests.lab.java import find_java


def program_jar(name: str, folder: Path) -> Path:
    """The jar of a program, made in `folder`. Needs a JDK: a JRE has no `javac`."""
    javac = find_java().resolve().with_name("javac")
    source = Path(__file__).with_name(f"{name}.java")
    subprocess.run([javac, "--release", "11", "-d", folder, source], check=True, timeout=120)
    jar = folder / f"{name}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nMain-Class: {name}\n\n")
        archive.write(folder / f"{name}.class", f"{name}.class")
    return jar
