"""Finds Java, and builds the command lines of the lab's JVMs."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.lab.lab_error import LabError

_CHECK_SECONDS = 30.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# As in Flink's own start scripts for Java 17 and later (`env.java.opts.all`), without the packages that a JRE lacks.
_EXPORTS = ("java.base/sun.net.util", "java.rmi/sun.rmi.registry", "java.security.jgss/sun.security.krb5")
_OPENS = (
    *("java.lang", "java.lang.reflect", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch"),
)

LOG4J: Final = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %-60c %x - %m%n
"""


def find_java(minimum: int = 17) -> Path:
    """The `java` of JAVA_HOME, else of PATH: the first of version `minimum` or newer. Raises LabError when there is none."""
    java_home = os.environ.get("JAVA_HOME")
    candidates = [Path(java_home) / "bin" / "java"] if java_home else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    versions = []
    for java in candidates:
        version = _major_version(java)
        if version is not None and version >= minimum:
            return java
        versions.append(f"{java} is {f'Java {version}' if version else 'no Java'}")
    raise LabError(
        f"Java {minimum} or newer is needed to run Flink ({'; '.join(versions) or 'none was found'}): "
        f"install one (Debian: apt-get install openjdk-{max(minimum, 17)}-jre-headless) or set JAVA_HOME"
    )


def java_command(
    java: Path, home: Path, folder: Path, heap_megabytes: int, main: str, *arguments: str, log: Path
) -> list[str]:
    """The command line that runs class `main` of the Flink distribution in `home`, in a small JVM that starts fast.

    It logs to standard output; `log` is the file which receives that, for Flink's REST API. Temporary files are in `folder`. Classes are
    loaded from the archive `class_archive(home, main)` if it exists.
    """
    archive = class_archive(home, main)
    log4j = folder / "log4j-console.properties"
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    log4j.write_text(LOG4J)
    return [
        str(java),
        *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData", f"-Xmx{heap_megabytes}m"),
        # An archive written by another Java version is ignored, without a warning.
        *((f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if archive.exists() else ()),
        *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS),
        f"-Djava.io.tmpdir={temporary}",
        f"-Dlog4j.configurationFile={log4j.as_uri()}",
        f"-Dlog.file={log}",
        *("-cp", f"{home / 'lib'}/*", main, *arguments),
    ]


def class_archive(home: Path, main: str) -> Path:
    """The path of the class data sharing archive for class `main` of the Flink distribution in `home`."""
    return home / f"{main.rpartition('.')[2]}.jsa"


def java_environment() -> dict[str, str]:
    """The environment of the lab's JVMs: nothing that could change how they run, and no secret."""
    return {name: value for name in ("PATH", "HOME", "TZ") if (value := os.environ.get(name))} | {"LANG": "C.UTF-8"}


def _major_version(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(answer.stderr)
    return int(version[1]) if version and answer.returncode == 0 else None
