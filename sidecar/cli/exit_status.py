"""How errors leave the program: one line on stderr and an exit status."""

import os
import select
import signal
import sys
import traceback
from typing import Any, Final

import click

from sidecar.core.errors import OperatorError
from sidecar.core.sanitize import printable

CLOSED_PIPE: Final = 128 + signal.SIGPIPE
"""What a shell reports of any tool whose reader has gone: not 0, for not all was written, `who`'s verdict for one."""


class ClosedPipeError(Exception):
    """Whoever read our output has gone. click would end the process with 1 if it saw the OSError."""


class QuietGroup(click.Group):
    """A group of commands that raises ClosedPipeError when nobody reads their output any more."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except BrokenPipeError as error:
            raise _closed_pipe(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _closed_pipe(error) from error


def _closed_pipe(error: BrokenPipeError) -> Exception:
    """What it is: the pipe may also be another one than our output, as that of a child process."""
    return ClosedPipeError() if _is_closed() else RuntimeError(str(error))


def _is_closed() -> bool:
    """Whether nobody reads our output any more."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def exit_status(error: BaseException, *, debug: bool) -> int:
    """Print `error` as one line; the exit status it stands for: 0 done, 1 failed at run time, 2 wrong usage or configuration.

    A reader of our output that has gone is CLOSED_PIPE, without a word.
    """
    match error:
        case SystemExit(code=code):  # click's own, of shell completion
            return code if isinstance(code, int) else int(code is not None)
        case ClosedPipeError() | BrokenPipeError() if _is_closed():
            # Python would complain while it flushes at the end: nobody is there to read that either.
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return CLOSED_PIPE
    if debug:
        traceback.print_exception(error)
    match error:
        case OperatorError():
            return _say(str(error), error.exit_status)
        case click.ClickException():
            return _wrong_usage(error)
        case click.Abort() | KeyboardInterrupt():
            return 0
    what = f"unexpected {type(error).__name__}: {error}"
    return _say(f"{what}; please run it again with --debug and report what it prints", 1)


def _wrong_usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # nothing was asked for: the help is the answer
        return 2
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"; see '{context.command_path} --help'" if context else ""
    return _say(error.format_message().removesuffix(".") + hint, 2)


def _say(message: str, status: int) -> int:
    print("flink-ha-sidecar:", printable(" ".join(message.split())), file=sys.stderr)
    return status
