"""How errors leave the program: one line on stderr and an exit status."""

import os
import sys
import traceback

import click

from sidecar.core.errors import OperatorError


def exit_status(error: BaseException, *, debug: bool) -> int:
    """Print `error` as one line; the exit status it stands for: 0 done, 1 failed at run time, 2 wrong usage or configuration."""
    if debug:
        traceback.print_exception(error)
    match error:
        case OperatorError():
            return _say(str(error), error.exit_status)
        case click.ClickException():
            return _wrong_usage(error)
        case click.Abort() | KeyboardInterrupt():
            return 0
        case BrokenPipeError():
            # Whoever read our output has gone. Python would complain while it flushes at the end: nobody is there to read that either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    print("flink-ha-sidecar:", " ".join(message.split()), file=sys.stderr)
    return status
