r"""`audit shell` executes statements and commands, from a pipe and at a prompt, with one start of Spark."""

import _thread
import io
import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.shell import Shell, is_complete, split
from sidecar.audit.ingest.ingest import ingest
from tests.audit.spooling import NOON, coverage, seal, transition
from tests.kit.sidecar_process import COMMAND
from tests.kit.terminal import CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal
from tests.kit.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool with three changes, ingested."""
    made = tmp_path_factory.mktemp("shell")
    seal(made / "spool", "jm-0", 1, [transition(n, NOON) for n in range(3)] + [coverage(1)])
    ingest(spark, str(made / "spool"), str(made / "audit"))
    return made


class Asked:
    """A shell that was given these lines, and what it answered."""

    def __init__(self, spark: SparkSession, folder: Path, *lines: str) -> None:
        answers, messages = io.StringIO(), io.StringIO()
        self.shell = Shell(spark, str(folder / "audit"), "table", answers, messages)
        self.shell.run(f"{line}\n" for line in lines)
        self.answers, self.messages = answers.getvalue(), messages.getvalue()


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("a; b;", ["a", " b", ""]),
        ("SELECT ';', \";\", `;` -- ;\n; x", ["SELECT ';', \";\", `;` -- ;\n", " x"]),
        (r"SELECT 'it\'s;'; x", [r"SELECT 'it\'s;'", " x"]),
        ("/* a; */ SELECT 1; y", ["/* a; */ SELECT 1", " y"]),
        ("SELECT 'not closed; ", ["SELECT 'not closed; "]),
        ("/* not closed; ", ["/* not closed; "]),
    ],
)
def test_a_semicolon_ends_a_statement(text: str, statements: list[str]) -> None:
    """Unless it is part of a text, a name or a comment."""
    assert split(text) == statements


@pytest.mark.parametrize("text", ["SELECT 1;", "\\d", " \\x ", "exit", "", " -- a comment", "SELECT 1; -- done"])
def test_enter_executes_what_is_complete(text: str) -> None:
    """A statement, a command, or nothing at all."""
    assert is_complete(text)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT 1; SELECT", "SELECT ';", "/* a"])
def test_enter_continues_what_is_not(text: str) -> None:
    """On another line."""
    assert not is_complete(text)


def test_statements_come_from_lines(spark: SparkSession, folder: Path) -> None:
    """Several on a line, one on several; the last one needs no semicolon."""
    asked = Asked(spark, folder, "SELECT 1 AS a; SELECT 2", "AS b;", "", "SELECT 3 AS c -- the end")
    assert asked.answers == "a\n-\n1\n(1 row)\nb\n-\n2\n(1 row)\nc\n-\n3\n(1 row)\n"
    assert (asked.messages, asked.shell.failed) == ("", False)


def test_an_error_is_one_line_and_the_next_statement_is_asked(spark: SparkSession, folder: Path) -> None:
    """Also what may not be asked, what was never finished, and a name that would command the terminal."""
    asked = Asked(
        spark,
        folder,
        "SELECT nonsense;",
        "DROP VIEW failovers;",
        "\\nope",
        "TABLE `\x1b[2J`;",
        "SELECT 1 AS a; SELECT 'x",
    )
    messages = asked.messages.splitlines()
    assert asked.answers == "a\n-\n1\n(1 row)\n"
    assert "`nonsense` cannot be resolved" in messages[0]
    assert "it is a command" in messages[1]
    assert messages[2] == "there is no command \\nope; \\? lists them"
    assert "cannot be found" in messages[3]
    assert messages[4:] == ["the last statement is not complete: SELECT 'x"]
    assert [line for line in messages if not line.isprintable()] == []
    assert asked.shell.failed


def test_there_must_be_an_audit_log(spark: SparkSession, tmp_path: Path) -> None:
    """The first question is not needed to find out."""
    with pytest.raises(AuditError, match="there is no such folder"):
        Asked(spark, tmp_path)


def test_d_lists_what_can_be_asked(spark: SparkSession, folder: Path) -> None:
    """Each table and view with what it is about, and each column with its type and its comment."""
    asked = Asked(spark, folder, "\\d", "\\o csv", "\\d Leader_Changes", "\\d sight;", "\\d nonsense")
    assert re.search(r"\nmttr +view +When a leader changed, for how long was no leader published", asked.answers)
    assert "\ncolumn,type,comment\ncluster_id,string," in asked.answers
    assert '\nvacant_seconds,double,"Seconds without a published leader before this one.' in asked.answers
    assert "\nWhen was each cluster's store observed?\n" in asked.messages
    assert asked.answers.endswith(
        "column,type,comment\n"
        'cluster_id,string,"Flink\'s cluster id, without slashes at its ends."\n'
        "began_at,timestamp,When the first observer was connected.\n"
        "ended_at,timestamp,Until when the last observer was connected.\n"
    )
    assert "there is no table or view nonsense; \\d lists them\n" in asked.messages


def test_the_format_can_be_changed(spark: SparkSession, folder: Path) -> None:
    """To any of `audit sql`, and to a line for each value and back."""
    one = "SELECT 1 AS a, 'x' AS text;"
    asked = Asked(spark, folder, "\\x", one, "\\x", one, "\\o json", one, "\\o nonsense", "\\timing", one, "\\q", one)
    assert asked.answers == (
        "-[ RECORD 1 ]-\na     1\ntext  x\n(1 row)\na  text\n-  ----\n1  x\n(1 row)\n" + '{"a":1,"text":"x"}\n' * 2
    )
    said = asked.messages.splitlines()
    assert said[:4] == [
        "Output is vertical.",
        "Output is table.",
        "Output is json.",
        "\\o needs one of table, vertical, json, csv",
    ]
    assert said[4] == "Timing is on."
    assert said[5].startswith("Time: ")


def test_new_records_are_seen_by_the_next_query(spark: SparkSession, folder: Path) -> None:
    """An ingest while the shell is open."""
    count = "SELECT count(*) AS n FROM annotations;"

    def lines() -> Iterator[str]:
        yield count
        added = [transition(9, NOON)]
        seal(folder / "spool", "jm-0", 5, added)
        ingest(spark, str(folder / "spool"), str(folder / "audit"))
        yield count.replace("annotations", "transitions")

    answers = io.StringIO()
    Shell(spark, str(folder / "audit"), "json", answers, io.StringIO()).run(lines())
    assert answers.getvalue() == '{"n":0}\n{"n":4}\n'


def test_an_interrupt_cancels_the_query(spark: SparkSession, folder: Path) -> None:
    """Its jobs end, and the next question is answered."""

    def interrupt() -> None:
        until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds(), PATIENCE_SECONDS)
        _thread.interrupt_main(signal.SIGINT)

    answers, messages = io.StringIO(), io.StringIO()
    shell = Shell(spark, str(folder / "audit"), "json", answers, messages)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where tests run in the background
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            shell.execute("SELECT count(*) FROM range(1000000000000000) WHERE id % 7 = 8;")
    finally:
        signal.signal(signal.SIGINT, before)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    shell.execute("SELECT 1 AS a;")
    assert (answers.getvalue(), messages.getvalue()) == ('{"a":1}\n', "Cancelled.\n")


@pytest.mark.covers("command:audit shell")
def test_at_a_terminal_there_is_a_prompt(folder: Path, tmp_path: Path) -> None:
    """Statements over lines, completion, Ctrl-C while rows arrive, history, Ctrl-D; hostile text is shown, not obeyed."""
    command = [*COMMAND, "audit", "shell", "--audit", str(folder / "audit"), "--output", "json", "--master", "local[2]"]
    state = tmp_path / "state"
    with Terminal(command, {"XDG_STATE_HOME": str(state)}) as terminal:
        terminal.shows("audit>")
        terminal.enter("SELECT 6 * 7 AS")
        terminal.shows("->")
        terminal.enter("answer;")
        terminal.shows('{"answer":42}')
        terminal.shows("audit>")
        terminal.type("SELECT nonsense")
        terminal.shows("nonsense")
        terminal.type(CTRL_C)
        terminal.shows("audit>")
        terminal.type("SELECT count(1) AS n FROM evid")
        terminal.shows("evid")
        terminal.type(TAB)
        terminal.shows("ence")
        terminal.enter(";")
        terminal.shows('{"n":0}')
        terminal.shows("audit>")
        terminal.enter(r"SELECT '\u001b[2J' AS text;")
        terminal.shows(r'{"text":"\u001b[2J"}')
        terminal.shows("audit>")
        terminal.enter("SELECT id FROM range(0, 1000000, 1, 500000);")  # 500,000 jobs
        terminal.shows('{"id":9}')
        terminal.type(CTRL_C)
        terminal.shows("Cancelled.")
        terminal.shows("audit>")
        terminal.type(UP + UP + ENTER)
        terminal.shows(r'{"text":"\u001b[2J"}')
        terminal.shows("audit>")
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    (history,) = (state / "flink-ha-sidecar").iterdir()
    assert "+SELECT 6 * 7 AS\n+answer;\n" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_from_a_pipe_it_ends_with_its_spark(folder: Path) -> None:
    """When the JVM is killed: one line, exit status 1."""
    with _piped(folder) as shell:
        assert shell.stdout is not None
        _enter(shell, "SELECT 1 AS a;")
        assert [shell.stdout.readline() for _ in range(2)] == ["a\n", "1\n"]
        os.kill(_jvm_of(shell), signal.SIGKILL)
        _ends_in_one_line(shell)


def test_from_a_pipe_it_ends_with_its_spark_that_it_is_connecting_to(folder: Path) -> None:
    """The kernel accepts a connection for the JVM, which is killed before it reads from it."""
    with _piped(folder) as shell:
        assert shell.stderr is not None
        _enter(shell, "\\timing")
        assert shell.stderr.readline() == "Timing is on.\n"
        jvm = _jvm_of(shell)
        os.kill(jvm, signal.SIGSTOP)
        try:
            _enter(shell, "SELECT 1;")
            assert until(lambda: _unread_by_peers(shell.pid) > 0, PATIENCE_SECONDS)
        finally:
            os.kill(jvm, signal.SIGKILL)
        _ends_in_one_line(shell)


def _piped(folder: Path) -> "subprocess.Popen[str]":
    command = [*COMMAND, "audit", "shell", "--audit", str(folder / "audit"), "--output", "csv", "--master", "local[2]"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _enter(shell: "subprocess.Popen[str]", line: str) -> None:
    assert shell.stdin is not None
    print(line, file=shell.stdin, flush=True)


def _jvm_of(shell: "subprocess.Popen[str]") -> int:
    (jvm,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    return int(jvm)


def _ends_in_one_line(shell: "subprocess.Popen[str]") -> None:
    output, errors = shell.communicate("SELECT 2;\nSELECT 3;\n", timeout=PATIENCE_SECONDS)
    assert (output, shell.returncode) == ("", 1)
    assert errors == "flink-ha-sidecar: cannot run the query: Spark's JVM was killed or has died\n"


def _unread_by_peers(process: int) -> int:
    """How many bytes of those that a process has sent over TCP on this machine were not read."""
    links = [str(descriptor.readlink()) for descriptor in Path(f"/proc/{process}/fd").iterdir()]
    lines = [line for table in ("tcp", "tcp6") for line in Path("/proc/net", table).read_text().splitlines()[1:]]
    sockets = [line.replace(":", " ").split() for line in lines]
    own = {(socket[2], socket[4]) for socket in sockets if f"socket:[{socket[13]}]" in links}
    return sum(int(socket[7], 16) for socket in sockets if (socket[4], socket[2]) in own)
