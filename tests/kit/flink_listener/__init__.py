"""Flink's own leader retrieval service as a program, to hold ours to."""

import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("FlinkListener.java")


def flink_listener(java: Path, home: Path, folder: Path) -> list[str] | None:
    """Compiles it into `folder` against the Flink distribution in `home`: the command, to which settings (`-Dkey=value`) and component
    paths (`/leader/dispatcher`) are to be added. None where there is no `javac` beside `java`: a JRE has none.
    """
    javac = java.resolve().with_name("javac")
    if not javac.exists():
        return None
    jars = f"{home / 'lib'}/*"
    subprocess.run([javac, "-d", folder, "-cp", jars, _SOURCE], check=True, timeout=120)
    small = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m")
    return [str(java), *small, "-cp", f"{folder}:{jars}", "FlinkListener"]
