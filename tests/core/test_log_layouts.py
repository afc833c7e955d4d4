"""The end of a log in any layout: each of the table, with each of the scenarios."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.first_fault import log_end
from sidecar.core.log_entries import entries
from tests import ROOT
from tests.kit.groups import examples

LOGS = ROOT / "tests" / "fixtures" / "logs"
ENTRYPOINT = "org.apache.flink.runtime.entrypoint.ClusterEntrypoint"
SHELL = "org.example.util.Shell"
HARMLESS = ("java.io.FileNotFoundException: SOME_HOME is unset.", "\tat org.example.Shell.check(Shell.java:6)")
CAUSE = "java.io.IOException: Mkdirs failed to create file:/ha/recovery/default"
FATAL = (
    "java.lang.IllegalStateException: Failed to start the Dispatcher",
    "\tat org.example.D.start(D.java:7)",
    f"Caused by: {CAUSE}",
    "\t... 1 more",
)
Layout = Callable[[int, str, str, str, tuple[str, ...]], str]
"""The lines of an entry: at second, level, logger, message, stack."""


def pattern(form: str, levels: dict[str, str] | None = None, case: Callable[[str], str] = str) -> Layout:
    """A layout of text: a head, and the stack below it as Java prints it."""

    def rendered(second: int, level: str, logger: str, message: str, stack: tuple[str, ...]) -> str:
        head = form.format(
            s=f"{second:02}", ms=second * 1000 + 123, lv=case((levels or {}).get(level, level)), l5=f"{case(level):<5}",
            r5=f"{case(level):>5}", lg=logger, c=logger.rpartition(".")[2], m=message, epoch=1_764_269_400 + second,
        )  # fmt: skip
        return "\n".join([head, *stack])

    return rendered


def json_layout(fields: Callable[[int, str, str, str, str], dict[str, Any]], **options: Any) -> Layout:
    """A layout of JSON: an object a line, the stack in one of its fields."""

    def rendered(second: int, level: str, logger: str, message: str, stack: tuple[str, ...]) -> str:
        return json.dumps(fields(second, level, logger, message, "\n".join(stack)), **options)

    return rendered


def thrown(stack: str) -> dict[str, Any]:
    """The exceptions of a stack as Log4j's JsonLayout and Logback's encoder nest them."""
    names = [line.removeprefix("Caused by: ") for line in stack.split("\n") if re.match(r"Caused by: |\w", line)]
    inner: dict[str, Any] = {}
    for name, _, message in (line.partition(": ") for line in reversed(names)):
        inner = {"name": name, "className": name, "message": message, **({"cause": inner} if inner else {})}
    return {"thrown": inner} if inner else {}


SYSLOG = {"FATAL": 2, "ERROR": 3, "WARN": 4, "INFO": 6}
LOG4J = {"FATAL": 100, "ERROR": 200, "WARN": 300, "INFO": 400}
LOGBACK = {"FATAL": 50_000, "ERROR": 40_000, "WARN": 30_000, "INFO": 20_000}
BUNYAN = {"FATAL": 60, "ERROR": 50, "WARN": 40, "INFO": 30}

LAYOUTS: dict[str, Layout] = {
    "flink": pattern("2026-11-27 18:50:{s},123 {l5} {lg:<60} [] - {m}"),
    "yy/MM/dd": pattern("26/11/27 18:50:{s} {lv} {c}: {m}"),
    "yyyy/MM/dd": pattern("2026/11/27 18:50:{s}.123 {lv} [main] {lg} - {m}"),
    "dd/MM/yyyy": pattern("27/11/2026 18:50:{s} {lv} {lg} - {m}"),
    "dd.MM.yyyy": pattern("27.11.2026 18:50:{s} [{lv}] {c}: {m}"),
    "dd MMM yyyy": pattern("27 Nov 2026 18:50:{s},123 {l5} {lg} - {m}"),
    "access": pattern("27/Nov/2026:18:50:{s} +0000 {lv} {lg} {m}"),
    "yyyyMMdd": pattern("20261127 18:50:{s}.123 {lv} {lg} - {m}"),
    "compact": pattern("20261127185000{s} {lv} {lg} - {m}"),
    "iso-zone": pattern("2026-11-27T18:50:{s}.123+01:00 {lv} {lg} - {m}"),
    "iso-utc": pattern("2026-11-27T18:50:{s}.123456Z [main] {lv} {lg} - {m}"),
    "time": pattern("18:50:{s}.123 [flink-pekko.actor.default-dispatcher-4] {l5} {lg} - {m}"),
    "milliseconds": pattern("{ms} [main] {l5} {lg} - {m}"),
    "milliseconds-word": pattern("{ms} main {lv} {lg} - {m}"),
    "epoch": pattern("{epoch}123 {lv} {lg} {m}"),
    "pipes": pattern("2026-11-27 18:50:{s}.123|{lv}|main|{lg}|{m}"),
    "spaced-pipes": pattern("2026-11-27 18:50:{s}.123 | {l5} | main | {lg} | {m}"),
    "brackets": pattern("[2026-11-27 18:50:{s},123][{lv}][{lg}] {m}"),
    "bracketed-level": pattern("2026-11-27 18:50:{s},123 [{l5}] {c} - {m}"),
    "padded-right": pattern("2026-11-27 18:50:{s},123 [{r5}] {lg}: {m}"),
    "coloured": pattern("2026-11-27 18:50:{s},123 \x1b[32m{l5}\x1b[m {lg} [] - {m}"),
    "coloured-line": pattern("\x1b[1;31m2026-11-27 18:50:{s},123 {lv} {lg} - {m}\x1b[0m"),
    "coloured-spring": pattern(
        "\x1b[2m2026-11-27 18:50:{s}.123\x1b[0;39m \x1b[32m{r5}\x1b[0;39m \x1b[35m7\x1b[0;39m --- [main] {lg} : {m}"
    ),
    "spring": pattern("2026-11-27 18:50:{s}.123  {r5} 7 --- [           main] {lg}   : {m}"),
    "word-before": pattern("flink-jobmanager 2026-11-27 18:50:{s},123 {l5} {lg} - {m}"),
    "words-before": pattern("orders prod [jm-0] 2026-11-27 18:50:{s},123 {l5} {lg} - {m}"),
    "level-first": pattern("{l5} 2026-11-27 18:50:{s},123 {lg} - {m}"),
    "level-alone": pattern("{l5} {lg} - {m}"),
    "level-padded": pattern("{r5} [main] {lg} - {m}"),
    "simple": pattern("[main] {lv} {lg} - {m}"),
    "maven": pattern("[{lv}] {m}"),
    "syslog": pattern("<11>1 2026-11-27T18:50:{s}.123Z jm-0 flink 7 - - {lv} {lg} {m}"),
    "small": pattern("2026-11-27 18:50:{s} {lv} {lg} - {m}", case=str.lower),
    "small-brackets": pattern("[18:50:{s}] [main/{lv}] [{lg}]: {m}", case=str.upper),
    "title": pattern("2026-11-27 18:50:{s},123 [{lv}] {lg} - {m}", case=str.title),
    "letter": pattern("2026-11-27 18:50:{s},123 {lv} {lg} - {m}", {"INFO": "I", "WARN": "W", "ERROR": "E", "FATAL": "F"}),
    "letter-brackets": pattern("18:50:{s} [{lv}] {lg} - {m}", {"INFO": "I", "WARN": "W", "ERROR": "E", "FATAL": "F"}),
    "three-letters": pattern("2026-11-27 18:50:{s} {lv} {lg} - {m}", {"INFO": "INF", "WARN": "WRN", "ERROR": "ERR", "FATAL": "FTL"}),
    "java.util.logging": pattern(
        "Nov 27, 2026 6:50:{s} PM {lg} main\n{lv}: {m}", {"WARN": "WARNING", "ERROR": "SEVERE", "FATAL": "SEVERE"}
    ),
    "java.util.logging-line": pattern(
        "[2026-11-27 18:50:{s}] [{lv}] {m}", {"WARN": "WARNING", "ERROR": "SEVERE", "FATAL": "SEVERE"}
    ),
    "logfmt": pattern('time=2026-11-27T18:50:{s}Z level={lv} logger={lg} msg="{m}"', case=str.lower),
    "tabs": pattern("2026-11-27 18:50:{s}\t{lv}\t{lg}\t{m}"),
    "csv": pattern("2026-11-27 18:50:{s},123;{lv};main;{lg};{m}"),
    "dashes": pattern("2026-11-27 18:50:{s},123-{lv}-{lg}-{m}"),
    "gelf": json_layout(
        lambda s, lv, lg, m, stack: {
            "version": "1.1", "host": "jm-0", "timestamp": 1_764_269_400.123 + s, "level": SYSLOG[lv], "_logger": lg, "short_message": m,
            "full_message": f"{m}\n{stack}",
        }
    ),
    "gelf-text": json_layout(
        lambda s, lv, lg, m, stack: {
            "version": "1.1", "timestamp": 1_764_269_400 + s, "level": str(SYSLOG[lv]), "_level_name": lv, "_loggerName": lg,
            "short_message": m, "_exception": stack,
        }
    ),
    "log4j": json_layout(
        lambda s, lv, lg, m, stack: {
            "instant": {"epochSecond": 1_764_269_400 + s, "nanoOfSecond": 5}, "thread": "main", "level": lv, "loggerName": lg,
            "message": m, **thrown(stack), "endOfBatch": False,
        }
    ),
    "log4j-pretty": json_layout(
        lambda s, lv, lg, m, stack: {
            "timeMillis": (1_764_269_400 + s) * 1000, "level": lv, "loggerName": lg, "message": m, **thrown(stack),
        },
        indent=2,
    ),
    "log4j-number": json_layout(
        lambda s, lv, lg, m, stack: {
            "timestamp": f"2026-11-27T18:50:{s:02}.123Z", "level": LOG4J[lv], "loggerName": lg, "message": m, "stackTrace": stack,
        }
    ),
    "logback": json_layout(
        lambda s, lv, lg, m, stack: {
            "@timestamp": f"2026-11-27T18:50:{s:02}.123+01:00", "message": m, "logger_name": lg, "level": lv, "level_value": LOGBACK[lv],
            "stack_trace": stack,
        }
    ),
    "logback-number": json_layout(
        lambda s, lv, lg, m, stack: {
            "ts": f"2026-11-27T18:50:{s:02}Z", "level": LOGBACK[lv], "logger": lg, "message": m, "throwable": thrown(stack).get("thrown"),
        }
    ),
    "ecs": json_layout(
        lambda s, lv, lg, m, stack: {
            "@timestamp": f"2026-11-27T18:50:{s:02}.123Z", "log.level": lv, "log.logger": lg, "message": m, "error.stack_trace": stack,
        }
    ),
    "ecs-nested": json_layout(
        lambda s, lv, lg, m, stack: {
            "@timestamp": f"2026-11-27T18:50:{s:02}.123Z", "log": {"level": lv.lower(), "logger": lg}, "message": m,
            "error": {"stack_trace": stack},
        }
    ),
    "ecs-number": json_layout(
        lambda s, lv, lg, m, stack: {
            "@timestamp": f"2026-11-27T18:50:{s:02}Z", "log": {"level": str(SYSLOG[lv]), "logger": lg}, "message": m,
            "error": {"stack_trace": stack},
        }
    ),
    "gcp": json_layout(
        lambda s, lv, lg, m, stack: {
            "timestamp": f"2026-11-27T18:50:{s:02}.123Z", "severity": {"FATAL": "EMERGENCY", "WARN": "WARNING"}.get(lv, lv),
            "message": m, "_exception": {"class": "", "message": "", "stackTrace": stack}, "_logger": lg,
        }
    ),
    "bunyan": json_layout(
        lambda s, lv, lg, m, stack: {
            "v": 0, "level": BUNYAN[lv], "name": lg, "msg": m, "time": f"2026-11-27T18:50:{s:02}Z", "err": {"stack": stack},
        }
    ),
    "json-in-text": pattern('2026-11-27 18:50:{s} {{"level":"{lv}","logger":"{lg}","message":"{m}"}}'),
}  # fmt: skip
"""Layouts of repositories, of default configurations, and of appenders."""


def run(layout: Layout, *ends: tuple[str, str, str, tuple[str, ...]]) -> str:
    """A run of a JobManager in this layout, with a harmless exception at its beginning."""
    beginning = (
        ("INFO", ENTRYPOINT, " Starting StandaloneSessionClusterEntrypoint (Version: 1.20.5)", ()),
        ("WARN", SHELL, "Did not find a program", HARMLESS),
        ("INFO", ENTRYPOINT, "Loading configuration property: rest.port, 8081", ()),
    )
    return "\n".join(layout(second, *entry) for second, entry in enumerate((*beginning, *ends))) + "\n"


SIGTERM = ("INFO", ENTRYPOINT, "RECEIVED SIGNAL 15: SIGTERM. Shutting down as requested.", ())


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_stopped_jobmanager_has_no_fault(layout: Layout) -> None:
    """A warning with an exception is none, and neither is an error after the signal."""
    assert log_end("log", run(layout, SIGTERM)).first_fault is None
    late = ("ERROR", ENTRYPOINT, "Could not close", HARMLESS)
    assert log_end("log", run(layout, SIGTERM, late)).first_fault is None
    assert log_end("log", run(layout)).first_fault is None


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("level", ["ERROR", "FATAL"])
def test_a_crashed_jobmanager_has_the_cause_of_its_fatal_error(layout: Layout, level: str) -> None:
    """Whatever it warned of before, and whatever error it had survived."""
    fatal = (level, ENTRYPOINT, "Fatal error occurred in the cluster entrypoint.", FATAL)
    survived = ("ERROR", SHELL, "Retry gave up", HARMLESS)
    for ends in ((fatal,), (survived, fatal)):
        end = log_end("log", run(layout, *ends))
        assert end.first_fault
        assert "Fatal error occurred in the cluster entrypoint" in end.first_fault
        assert end.first_fault.endswith(f": {CAUSE}")
        assert end.exception == "java.io.IOException"


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_last_run_counts_in_any_layout(layout: Layout) -> None:
    """The fatal error of the run before is not that of this one."""
    fatal = ("ERROR", ENTRYPOINT, "Fatal error occurred in the cluster entrypoint.", FATAL)
    assert log_end("log", run(layout, fatal) + run(layout, SIGTERM)).first_fault is None


@given(
    st.sampled_from([*LAYOUTS.values()]),
    st.lists(st.sampled_from(["info", "warn", "survived", "multi-line"]), max_size=12),
    st.booleans(),
)
@settings(max_examples=examples(300))
def test_any_layout_with_any_history(layout: Layout, history: list[str], crashes: bool) -> None:
    """What a JobManager logged before its end changes nothing: a crash has its cause, and without an error there is no fault."""
    known: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
        "info": ("INFO", SHELL, "Completed checkpoint 4: no ERROR so far", ()),
        "warn": ("WARN", SHELL, "Ignored", ("a.b.OddException: odd", "\tat a.B.c(B.java:1)")),
        "survived": ("ERROR", SHELL, "Retry gave up", HARMLESS),
        "multi-line": ("INFO", SHELL, "Usage", ("  see the ERROR log", "at 10:00 or later")),
    }
    before = [known[name] for name in history]
    end = ("FATAL", ENTRYPOINT, "Fatal error occurred in the cluster entrypoint.", FATAL) if crashes else SIGTERM
    fault = log_end("log", run(layout, *before, end)).first_fault
    if crashes:
        assert fault
        assert fault.endswith(f": {CAUSE}")
    elif "survived" in history:
        assert fault
        assert "Retry gave up" in fault
    else:
        assert fault is None


@pytest.mark.parametrize("layout", ["brackets", "coloured", "pipes", "yymmdd"])
def test_ends_of_logs_in_layouts_of_real_repositories(layout: str) -> None:
    """The harmless exception is not the first error, and does not hide the cause of the crash."""
    assert log_end("log", (LOGS / "layouts" / f"sigterm-{layout}.log").read_text()).first_fault is None
    end = log_end("log", (LOGS / "layouts" / f"crash-{layout}.log").read_text())
    assert end.first_fault == f"Fatal error occurred in the cluster entrypoint: {CAUSE}"


@pytest.mark.parametrize(
    ("layout", "age"),
    [("flink", 3), ("yy/MM/dd", 3), ("dd/MM/yyyy", 3), ("yyyyMMdd", 3), ("milliseconds", 3), ("epoch", 3), ("iso-zone", 3), ("gelf", 3),
     ("log4j-pretty", 3), ("time", None), ("maven", None)],
)  # fmt: skip
def test_the_age_of_a_fault_in_other_layouts(layout: str, age: int | None) -> None:
    """By the times of the log; where there is no date, it is not known."""
    fatal = ("ERROR", ENTRYPOINT, "Fatal error occurred in the cluster entrypoint.", FATAL)
    later = ("INFO", SHELL, "it goes on", ())
    end = log_end("log", run(LAYOUTS[layout], fatal, later, later, later))
    assert end.fault_age == (None if age is None else age * 1_000_000)


def test_exceptions_count_without_levels_only() -> None:
    """Warnings that the JVM prints into any log are no layout with levels; one line with a level is."""
    bare = f"2026-11-27 18:50:00 starting\n{CAUSE}\n"
    assert log_end("log", bare).first_fault == CAUSE
    assert log_end("log", f"WARNING: A terminally deprecated method\n{bare}").first_fault == CAUSE
    assert log_end("log", f"{bare}18:50:01 INFO a.B - fine\n").first_fault is None


@pytest.mark.parametrize(
    "text",
    [
        "[2026-11-27 18:50:00][" * 12_000,
        "{\n" * 120_000,
        "\x1b[" * 120_000,
        "18:50:00 " + "a." * 100_000 + " ERROR",
        json.dumps({"level": "ERROR", "error": {"stack": "x\n" * 100_000}}),
        "level=" * 40_000,
        "| " * 100_000 + "ERROR",
    ],
)
def test_hostile_layouts(text: str) -> None:
    """An entry is bounded, and found in bounded time."""
    for entry in entries(text[-(256 << 10) :]):
        assert len(entry.lines) <= 500
        assert len(entry.message) <= 2_000
