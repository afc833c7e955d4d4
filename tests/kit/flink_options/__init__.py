"""Flink's own reader of its configuration as a program, to hold ours to."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_SOURCE = Path(__file__).with_name("FlinkOptions.java")
_MARK: Final = "= "
_SECONDS: Final = 120.0


def flink_options(java: Path, home: Path, folder: Path, configurations: Iterable[Path]) -> list[dict[str, str] | str]:
    """The options of the Flink configuration in each of these folders, as the Flink in `home` reads it; a text: it refuses it.

    Compiles the program into `folder`, with the `javac` beside `java`.
    """
    jars = f"{home / 'lib'}/*"
    javac = java.resolve().with_name("javac")
    subprocess.run([javac, "-d", folder, "-cp", jars, _SOURCE], check=True, timeout=_SECONDS)
    command: list[str | Path] = [
        java,
        "-XX:TieredStopAtLevel=1",
        "-Xmx256m",
        "-cp",
        f"{folder}:{jars}",
        "FlinkOptions",
        *configurations,
    ]
    printed = subprocess.run(command, check=True, timeout=_SECONDS, capture_output=True, text=True).stdout
    return [json.loads(line.removeprefix(_MARK)) for line in printed.split("\n") if line.startswith(_MARK)]
