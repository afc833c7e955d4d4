"""The JVM in which Spark runs: started by Spark's own script, ended with the process."""

import hashlib
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from sidecar.audit.audit_error import AuditError, reason
from sidecar.core.errors import installing
from sidecar.runtime.folders import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DIRECTIVES: Final = Path(__file__).with_name("compiler_directives.json")
WRITE_SECONDS: Final = 900.0
"""A JVM needs about twenty seconds of CPU time to write the archive when it ends: much longer where many processes share few cores."""
_SILENT: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_GATEWAY: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
"""Where PySpark looks for a JVM that runs already. spark-submit sets them for the program that it starts."""
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Where Spark's script takes options of the JVM from, beside those of the configuration."""
_NEEDED: Final = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "SHELL", "TERM")
_NEEDED_PREFIXES: Final = (
    *("SPARK_", "PYSPARK_", "HADOOP_", "JAVA_", "JDK_", "_JAVA_"),
    *("LC_", "LD_", "NSS_", "KRB5", "MALLOC_"),
)
"""The variables that Spark's scripts and Java itself read."""
_MORE_CLASSES: Final = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS")
"""Variables that may bring other classes than those of PySpark."""
_CLOUD_JARS: Final = ("*aws*", "*azure*", "*gcs*", "*cloud*")
"""Clients of clouds that somebody has put beside Spark's own jars."""
_POLL_SECONDS: Final = 0.02
_JAVA_CHECK_SECONDS: Final = 30.0
_OLDEST_JAVA: Final = 17
_EXCEPTION: Final = re.compile(r"\w(?:Exception|Error): (.+)")


class Run(Enum):
    """A run of Spark, by how much it reads."""

    SMALL = "small"
    LARGE = "large"
    HUGE = "huge"


def java_options(run: Run) -> str:
    """The options of a JVM for such a run, quoted as in a shell.

    Java's first compiler alone is best for most runs, which are short: half of their CPU time would be spent on compiling code that hardly
    runs. But it calls native code for each copy in memory and for each thread-local variable. In a large run the second compiler compiles
    these few methods, which `compiler_directives.json` names. It needs counters in all code, which cost a second of CPU time. Only in a run
    of minutes does it pay to compile everything twice, and to collect garbage on all cores.
    """
    selected = f"-XX:+UnlockDiagnosticVMOptions {shlex.quote(f'-XX:CompilerDirectivesFile={_DIRECTIVES}')}"
    of_run = {
        Run.SMALL: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        Run.LARGE: f"-XX:+UseSerialGC {selected}",
        Run.HUGE: "-XX:+UseParallelGC",
    }
    # The code does not fit into the 48 MB that Java reserves for the first compiler alone: a long run would compile it again and again.
    return f"{of_run[run]} -XX:ReservedCodeCacheSize=240m"


def archive_places() -> Sequence[Path]:
    """Where the archive of Spark's classes may be: in the Python environment that Spark is installed in, preferably, or the user's cache.

    With it (Java's class data sharing), a JVM starts in half the CPU time. It uses none of another Java or of other jars.
    """
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    return (
        Path(sys.prefix) / "share" / "flink-ha-sidecar" / "spark-classes.jsa",
        cache_folder() / f"spark-classes-{environment}.jsa",
    )


def archive_options() -> Sequence[str]:
    """The options of a JVM that uses the archive, if there is one. The newer one, if there are two: an older one can be out of date."""
    existing = [place for place in archive_places() if place.is_file()]
    return options_to_read(max(existing, key=lambda place: place.stat().st_mtime)) if existing else ()


def options_to_read(archive: Path) -> Sequence[str]:
    """The options of a JVM that uses this archive."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT)


def options_to_write(archive: Path) -> Sequence[str]:
    """The options of a JVM that writes this archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)


class Jvm:
    """A JVM with Spark in it, or that of the spark-submit which started this process. Starts at once; `connect` waits for it."""

    def __init__(
        self,
        settings: Mapping[str, str],
        options: Sequence[str],
        defaults: Mapping[str, str],
        folder: Path,
        output: IO[bytes],
        *,
        silent: bool,
    ) -> None:
        """`settings` are Spark's, `options` are the JVM's, `defaults` is for variables of the environment that are not set.

        What the JVM prints goes to `output`; if not `silent`, to standard error. `folder` is for the address of its gateway, with a
        secret: it must be private. Raises AuditError when PySpark is not installed.
        """
        self._output = output
        self._connection = folder / "connection"
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _invented_user()
        home = spark_home()
        if _GATEWAY[0] in os.environ:
            return
        command = [f"{home}/bin/spark-submit"]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection)}
        try:
            self._process = subprocess.Popen(
                command,
                env={**defaults, **script_environment(home, [*options, *self._user_options(folder)], settings), **own},
                stdin=subprocess.PIPE,  # the JVM ends when it is closed, so also with this process
                stdout=output if silent else 2,
                stderr=output if silent else None,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509  Ctrl-C is for us; no other thread runs yet
            )
        except OSError as error:
            raise AuditError(f"cannot start Spark: {reason(error)}") from error

    def connect(self) -> Any:
        """PySpark's gateway to it. Raises AuditError when the JVM has not started."""
        try:
            # PySpark is imported while the JVM starts: each takes most of a second.
            from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

            launch: Any = launch_gateway  # untyped
            with _environment(self._await_connection()):
                gateway = launch()
            if self._user is not None:
                users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
                if not users.isSecurityEnabled():  # else Kerberos knows the user
                    users.setLoginUser(users.createRemoteUser(self._user))
        except Exception as error:
            raise AuditError(f"cannot start Spark: {_start_problem(self._output) or reason(error)}") from error
        return gateway

    def end(self, gateway: Any, session: "SparkSession | None", seconds: float) -> None:
        """Stop Spark and wait until its JVM has ended, which otherwise outlives this process. Kills it after that many `seconds`."""
        if gateway is not None:
            _disconnect(gateway, session)
        if self._process is None or self._process.stdin is None:  # it is spark-submit's, and ends with this process
            return
        self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _user_options(self, folder: Path) -> Sequence[str]:
        """What Java otherwise takes from the list of users: without an entry, both are `?`, and Spark looks for files in `?/.ivy2`."""
        if self._user is None:
            return ()
        user_home = os.environ.get("HOME", "").rstrip("/")
        home = user_home if user_home.startswith("/") and os.access(user_home, os.W_OK) else folder
        return (f"-Duser.name={self._user}", f"-Duser.home={home}")

    def _await_connection(self) -> Mapping[str, str]:
        if self._process is None:
            return {}
        while not self._connection.exists():
            if self._process.poll() is not None:
                raise RuntimeError("its JVM ended at once")
            time.sleep(_POLL_SECONDS)
        content = self._connection.read_bytes()  # the port, the length of the secret, the secret
        return dict(zip(_GATEWAY, (str(int.from_bytes(content[:4], "big")), content[8:].decode()), strict=True))


def spark_home() -> str:
    """The folder of the Spark that is installed here, or of SPARK_HOME. Raises AuditError when there is none.

    Spark's scripts would start a Python to find it.
    """
    package = find_spec("pyspark")  # PySpark itself is imported later
    if package is None or package.origin is None:
        raise AuditError(f"cannot start Spark: it is not installed; install it with: {installing('audit')}")
    return os.environ.get("SPARK_HOME") or str(Path(package.origin).parent)


def script_environment(home: str, options: Sequence[str], settings: Mapping[str, str]) -> dict[str, str]:
    """The environment for Spark's scripts, so that their JVM gets `options`; what the user set in SPARK_SUBMIT_OPTS overrides them.

    PySpark alone, on this machine, reads no secret from the environment (it has no client of any cloud), so it gets none: only what it
    needs. Other classes or another master get the whole environment.
    """
    env = dict(os.environ)
    more = any(key.startswith("spark.jars") or key.endswith(".extraClassPath") for key in settings)
    more = more or any(map(env.get, _MORE_CLASSES)) or any(any(Path(home, "jars").glob(jar)) for jar in _CLOUD_JARS)
    if settings.get("spark.master", "local").startswith("local") and not more:
        env = {key: value for key, value in env.items() if key in _NEEDED or key.startswith(_NEEDED_PREFIXES)}
    return {**env, "SPARK_HOME": home, _OPTIONS: f"{shlex.join(options)} {env.get(_OPTIONS, '')}".strip()}


def _invented_user() -> str | None:
    """A name for the user of this process; None if it has one. OpenShift starts containers under ids that have none.

    Java and Hadoop cannot start without a name.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return os.environ.get("HADOOP_USER_NAME") or f"uid-{os.geteuid()}"
    return None


def _disconnect(gateway: Any, session: "SparkSession | None") -> None:
    from pyspark import SparkContext  # noqa: PLC0415  see Jvm.connect

    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        if session is not None:
            session.stop()  # fails and warns when the JVM has died, which was reported already
    gateway.shutdown()
    # Otherwise PySpark reuses the closed gateway for the next session of this process.
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  there is no public way


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables in the environment of this process, which has none of them."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _start_problem(output: IO[bytes]) -> str | None:
    """Why the JVM did not start, and what to do."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    remedy = "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        return f"it needs Java {_OLDEST_JAVA} or newer, and none was found: {remedy}"
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it needs Java {_OLDEST_JAVA} or newer, and {java} does not run ({error}): {remedy}"
    version = answer.stderr.partition('version "')[2].removeprefix("1.").partition('"')[0]
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) < _OLDEST_JAVA:
        return f"it needs Java {_OLDEST_JAVA} or newer, and {java} is Java {major}: {remedy}"
    output.seek(0)
    text = output.read().decode(errors="replace")
    exception = _EXCEPTION.search(text)
    return exception[1] if exception else next(iter(text.splitlines()), None)
