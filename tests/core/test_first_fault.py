"""The first fault at the end of a Flink log, in logs of real JobManagers and in hostile ones."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.first_fault import MOST_SHOWN, log_end
from tests import ROOT

LOGS = ROOT / "tests" / "fixtures" / "logs"
ENTRYPOINT = "org.apache.flink.runtime.entrypoint.ClusterEntrypoint"
FAILED = "Shutting KubernetesApplicationClusterEntrypoint down with application status FAILED. Diagnostics"
LATCH = "org.apache.curator.framework.recipes.leader.LeaderLatch"
LOST_NODE = "Can't find our node. Resetting. Index: -1"
HEAP = "java.lang.OutOfMemoryError: Java heap space"


def line(level: str, message: str, at: str = "10:00:00,123", logger: str = ENTRYPOINT) -> str:
    """A line in Flink's own layout."""
    return f"2026-11-25 {at} {level:<5} {logger:<60} [] - {message}\n"


FATAL = line("ERROR", "Fatal error occurred in the cluster entrypoint.", "10:00:01,500")


@pytest.mark.parametrize(
    ("file", "fault", "exception"),
    [
        (
            "heap-exhausted",
            (
                "FATAL: Thread 'flink-pekko.remote.default-remote-dispatcher-18' produced an uncaught exception. Stopping the process: "
                'java.lang.ExceptionInInitializerError: Exception java.lang.OutOfMemoryError: Java heap space [in thread "flink-pekko.'
                'remote.default-remote-dispatcher-20"]'
            ),
            "java.lang.OutOfMemoryError",
        ),
        (
            "missing-ha-file",
            (
                "Fatal error occurred in the cluster entrypoint: org.apache.flink.util.FlinkException: Could not retrieve checkpoint 3 "
                "from state handle under /0000000000000000003. This indicates that the retrieved state handle is broken. Try cleaning "
                "the state handle store."
            ),
            "org.apache.flink.util.FlinkException",
        ),
        (
            "lost-zookeeper",
            (
                "Fatal error occurred in the cluster entrypoint: org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.KeeperException$"
                "ConnectionLossException: KeeperErrorCode = ConnectionLoss"
            ),
            "org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.KeeperException$ConnectionLossException",
        ),
        ("crashed-jvm", "SIGSEGV (0xb) at pc=0x00007f6bcdb1ff14 (sent by kill), pid=20171, tid=20171", None),
        ("sigterm", None, None),
        ("full-disk", None, None),
    ],
)
def test_logs_of_real_jobmanagers(file: str, fault: str | None, exception: str | None) -> None:
    """Each of Flink 2.3.0, shortened. A checkpoint without space fails a job and no JobManager; after SIGTERM nothing is a fault."""
    end = log_end(file, (LOGS / f"{file}.log").read_text())
    assert (end.source, end.first_fault, end.exception) == (file, fault, exception)
    assert end.last_line


@pytest.mark.parametrize(
    ("text", "fault", "exception"),
    [
        ("", None, None),
        (line("INFO", "Completed checkpoint 4"), None, None),
        # later exceptions are consequences
        (
            line("ERROR", "Could not store the plan.") + "java.io.IOException: No space left on device\n" + FATAL + HEAP,
            f"Fatal error occurred in the cluster entrypoint: {HEAP}",
            "java.lang.OutOfMemoryError",
        ),
        (
            line("ERROR", "Lost the store.") + "a.b.StoreException: gone\n" + line("ERROR", "Broke") + "a.b.LaterException: closed",
            "Lost the store: a.b.StoreException: gone",
            "a.b.StoreException",
        ),
        # the error that ended the process, and not one that it survived
        (
            line("ERROR", "Retry gave up.") + "a.b.RetryException: gone\n" + FATAL + "java.lang.IllegalStateException: broken",
            "Fatal error occurred in the cluster entrypoint: java.lang.IllegalStateException: broken",
            "java.lang.IllegalStateException",
        ),
        (
            line("ERROR", "Retry gave up.") + line("FATAL", "Could not bind to the port") + line("ERROR", "No metrics"),
            "Could not bind to the port",
            None,
        ),
        (
            line("ERROR", "Retry gave up.")
            + line("INFO", "Terminating cluster entrypoint process XEntrypoint with exit code 239.") + "a.b.LastException: end\n",
            "Terminating cluster entrypoint process XEntrypoint with exit code 239: a.b.LastException: end",
            "a.b.LastException",
        ),
        # one that does not say why, and one that is a consequence
        (line("ERROR", "Lost the store.") + FATAL, "Lost the store.", None),
        (
            line("ERROR", "Lost the store.") + FATAL + "java.lang.IllegalStateException: has been closed",
            "Lost the store.",
            None,
        ),
        # known consequences never win over another error, even an earlier one
        (
            line("ERROR", "Fencing token not set: Ignoring message") + line("ERROR", "Something broke") + FATAL,
            "Something broke",
            None,
        ),
        (line("ERROR", "Shutdown hook failed."), "Shutdown hook failed.", None),
        (line("WARN", "RECEIVED SIGNAL 15: SIGTERM. Shutting down as requested.") + FATAL + HEAP, None, None),
        # what happened to others
        (
            line("INFO", f"Source (1/1) switched from RUNNING to FAILED on tm-1.\n{HEAP}"),
            None,
            None,
        ),
        (
            line("ERROR", "Exception occurred in REST handler: no job", logger="org.apache.flink.runtime.rest.handler.job.JobHandler"),
            None,
            None,
        ),
        # what Curator tries again: a contender's node that went with its session, by its full name and by a short one
        (line("ERROR", LOST_NODE, logger=f"org.apache.flink.shaded.curator5.{LATCH}"), None, None),
        (line("ERROR", LOST_NODE, logger="o.a.f.s.c.o.a.c.f.r.l.LeaderLatch"), None, None),
        (line("ERROR", "Authentication failed", logger="o.a.c.ConnectionState"), None, None),
        # an error of half an hour before is another story
        (line("ERROR", "Old.", "09:20:00,000") + line("INFO", "Completed checkpoint 4"), None, None),
        # the run before
        (line("ERROR", "Old.") + line("INFO", " Starting StandaloneSessionClusterEntrypoint (Version: 2.3.0, Scala: 2.12)"), None, None),
        # what a JVM prints between the lines
        (line("INFO", "fine") + f"Terminating due to {HEAP}\n", f"Terminating due to {HEAP}", "java.lang.OutOfMemoryError"),
        (
            line("INFO", "fine") + 'Exception in thread "main" java.lang.StackOverflowError\n\tat a.B.c(B.java:1)\n',
            'Exception in thread "main" java.lang.StackOverflowError',
            "java.lang.StackOverflowError",
        ),
        (
            "#\n# There is insufficient memory for the Java Runtime Environment to continue.\n# Native memory allocation (mmap) failed\n",
            "Native memory allocation (mmap) failed",
            None,
        ),
        # the fatal message that is not an ERROR
        (line("INFO", f"{FAILED} x.y.ZException: q"), f"{FAILED} x.y.ZException: q", None),
        # other layouts
        (f"10:00:00.123 [main] ERROR a.B - Broken\n{HEAP}\n", f"Broken: {HEAP}", "java.lang.OutOfMemoryError"),
        (f"[ERROR] Broken\nCaused by: {HEAP}\n", f"Broken: {HEAP}", "java.lang.OutOfMemoryError"),
        (f"starting\n{HEAP}\n\tat a.B.c(B.java:1)\nbye\n", HEAP, "java.lang.OutOfMemoryError"),
        ("starting\nworking\nbye\n", None, None),
    ],
)  # fmt: skip
def test_the_first_fault(text: str, fault: str | None, exception: str | None) -> None:
    """Whatever the layout, and None where nothing says why the process ended."""
    end = log_end("log", text)
    assert (end.first_fault, end.exception) == (fault, exception)


@pytest.mark.parametrize(
    "fields",
    [
        {"instant": {"epochSecond": 1764064801, "nanoOfSecond": 5}, "level": "ERROR", "loggerName": "a.B", "message": "Broken",
         "thrown": {"name": "java.lang.OutOfMemoryError", "message": "Java heap space"}},
        {"@timestamp": "2025-11-25T10:00:01Z", "log.level": "ERROR", "log.logger": "a.B", "message": "Broken",
         "error.type": "java.lang.OutOfMemoryError", "error.message": "Java heap space", "error.stack_trace": f"{HEAP}\n\tat a.B"},
        {"@timestamp": "2025-11-25T11:00:01+01:00", "level": "ERROR", "logger_name": "a.B", "message": "Broken",
         "stack_trace": f"java.lang.RuntimeException: x\n\tat a.B\nCaused by: {HEAP}"},
    ],
)  # fmt: skip
def test_json_layouts(fields: dict[str, object]) -> None:
    """JsonLayout of Log4j, ECS and Logback's encoder."""
    info = {"level": "INFO", "message": "fine", "@timestamp": "2025-11-25T10:00:00Z"}
    end = log_end("log", f"{json.dumps(info)}\n{json.dumps(fields)}\n")
    assert (end.first_fault, end.exception) == (f"Broken: {HEAP}", "java.lang.OutOfMemoryError")
    assert end.fault_age == 0


def test_a_long_stack_in_a_line_of_json() -> None:
    """The line is longer than what is shown of any, and the short error after it is a consequence."""
    stack = "\n".join(
        [f"java.lang.RuntimeException: {HEAP}", *(f"\tat a.B.c{number}(B.java:1)" for number in range(300))]
    )
    first = {
        "@timestamp": "2025-11-25T10:00:01Z",
        "log.level": "ERROR",
        "message": "Broken",
        "error.stack_trace": stack,
    }
    second = {"@timestamp": "2025-11-25T10:00:02Z", "log.level": "ERROR", "message": "Later other failure"}
    end = log_end("log", f"{json.dumps(first)}\n{json.dumps(second)}\n")
    assert end.first_fault
    assert end.first_fault.startswith("Broken")
    assert end.fault_age == 1_000000


def test_the_age_of_a_fault_is_known_in_any_time_zone() -> None:
    """By the writer's clock alone; without a date it is not known."""
    assert log_end("log", FATAL + line("INFO", "it goes on", "10:03:21,500")).fault_age == 200_000000
    assert log_end("log", f"12:00:01 ERROR a.B - {HEAP}\n12:09:01 INFO a.B - fine").fault_age is None


@pytest.mark.parametrize(
    "secret",
    ["jdbc:postgresql://u:geheim@db/x", "password=geheim", "sasl.password: 'geheim'", "Authorization: Bearer geheimgeheim",
     "https://h/?a=1&X-Amz-Signature=geheim", '{"s3.secret-key": "geheim"}', "s3.secret-key: geheim", "run --password geheim",
     "eyJhbGciOiJIUzI1NiJ9.geheim.geheim"],
)  # fmt: skip
def test_secrets_are_masked(secret: str) -> None:
    """In the fault and in the last line."""
    end = log_end("log", line("ERROR", f"Could not connect with {secret}"))
    assert end.first_fault
    assert "<secret>" in end.first_fault
    assert "geheim" not in end.first_fault + end.last_line


def test_a_class_is_no_secret() -> None:
    """Named like one: it is what has to be seen."""
    text = "FencingTokenException: Fencing token mismatch: expected token 5, tokens: none"
    assert log_end("log", line("ERROR", text)).first_fault == text


@pytest.mark.parametrize(
    "text",
    [
        Path("/bin/true").read_bytes().decode(errors="replace"),
        "\x1b[31mERROR \x07" * 50_000,
        '{"a":' * 50_000,
        line("ERROR", "x" * 200_000),
        line("ERROR", "a.") + "Caused by: " + "a." * 100_000,
        "ERROR " + "password" * 20_000,
        "://" * 80_000,
    ],
)
def test_hostile_logs(text: str) -> None:
    """Binary, without an end of line, made to be slow: one bounded, printable line in bounded time."""
    end = log_end("log", text)
    for shown in (end.first_fault or "", end.last_line, end.exception or ""):
        assert shown.isprintable()
        assert len(shown) <= MOST_SHOWN + 1


@given(st.text(max_size=300), st.sampled_from([FATAL, HEAP + "\n", line("INFO", "fine")]))
def test_any_text_has_an_end(text: str, other: str) -> None:
    """No text raises an error."""
    for mixed in (text + other, other + text, other + text + other):
        log_end("log", mixed)
