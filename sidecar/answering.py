"""The other side of `sidecar.child`: what a child process does. Loads nothing of the sidecar, so that a child starts fast."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn


def answer_once(answer: Callable[..., object]) -> NoReturn:
    """Answer the one request, whose keys are arguments of `answer`, and end. Ends without an answer when the parent does."""
    request = json.loads(sys.stdin.buffer.readline())
    out = os.dup(1)
    os.dup2(2, 1)  # programs that are started from here must not answer for us
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    with os.fdopen(out, "w") as stream:
        stream.write(json.dumps(answer(**request)) + "\n")
    os._exit(0)  # waits for no thread of a library


def _end_with_the_parent() -> None:
    try:
        os.read(0, 1)  # nothing more is sent: it returns, or raises, when the other end closes
    finally:
        if os.getpgrp() == os.getpid():  # what was started from here goes too
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
