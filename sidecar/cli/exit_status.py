"""The exit statuses of all commands; that of an error, and its line on stderr."""

import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from sidecar.cli.printing import print_mistake
from sidecar.core.cluster.status import OVER, Status
from sidecar.core.errors import OperatorError

DONE: Final = 0
"""`status`, `who`: OK, STOPPED or UNCHECKED. `ha check`: every check passed."""
FAILED: Final = 1
"""The command failed. `status` and `who`: a status other than OK, STOPPED, UNCHECKED and BLIND. `ha check`: there is a risk."""
WRONG_USAGE: Final = 2
CANNOT_TELL: Final = 3
"""The requested state cannot be read, or is not known yet."""
CLOSED_PIPE: Final = 128 + signal.SIGPIPE
"""The status that a shell reports for a tool whose reader is gone. Not 0, because the output is incomplete."""


class ClosedPipeError(Exception):
    """The reader of our output is gone. click would turn the OSError into exit status 1."""


def status_exit(worst: Status) -> int:
    """The exit status of a command that shows how clusters are. `worst`: the worst status among them."""
    if worst is Status.BLIND:
        return CANNOT_TELL
    return DONE if worst in OVER else FAILED


class QuietGroup(click.Group):
    """A group of commands that raises ClosedPipeError when the reader of their output is gone."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _closed_pipe():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_pipe():
            return super().invoke(ctx)


class CannotTellError(OperatorError):
    """A command that says how something is cannot."""

    exit_status = CANNOT_TELL


@contextmanager
def not_told_if_interrupted() -> Iterator[None]:
    """Raise CannotTellError where a command is interrupted that has not printed how something is: 0 would mean that it is well."""
    try:
        yield
    except KeyboardInterrupt:
        raise CannotTellError("interrupted before everything was read") from None


@contextmanager
def _closed_pipe() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        # It may also be the pipe of a child process.
        raise (ClosedPipeError() if _is_closed() else RuntimeError(str(error))) from error


def _is_closed() -> bool:
    """True if the reader of our output is gone."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def exit_status(error: BaseException, *, debug: bool) -> int:
    """Print `error` as one line; returns its exit status.

    If the reader of our output is gone, returns CLOSED_PIPE and prints nothing.
    """
    match error:
        case SystemExit(code=code):  # click's own, of shell completion
            return code if isinstance(code, int) else int(code is not None)
        case ClosedPipeError() | BrokenPipeError() if _is_closed():
            # Python flushes at exit, and would print an error.
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return CLOSED_PIPE
    if debug:
        traceback.print_exception(error)
    match error:
        case OperatorError():
            return _fail(str(error), error.exit_status)
        case click.ClickException():
            return _wrong_usage(error)
        case click.Abort() | KeyboardInterrupt():
            return DONE
    problem = f"unexpected {type(error).__name__}: {error}"
    return _fail(f"{problem}; please run it again with --debug and report what it prints", FAILED)


def _wrong_usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # without arguments, print the help
        return WRONG_USAGE
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"; see '{context.command_path} --help'" if context else ""
    return _fail(error.format_message().removesuffix(".") + hint, WRONG_USAGE)


def _fail(message: str, status: int) -> int:
    print_mistake(message)
    return status
