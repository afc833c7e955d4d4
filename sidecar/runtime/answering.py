"""The child process's side of `sidecar.runtime.child`. Imports next to nothing of the sidecar, so that a child starts fast."""

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from sidecar.core.bounds import OUT_OF_MEMORY


def answer_once(answer: Callable[..., object]) -> NoReturn:
    """Answer the one request, whose keys are the arguments of `answer`, and exit. Exits without an answer if the parent does.

    The first argument of the command line is how many bytes of memory this process, and each that it starts, may have.
    """
    for most in sys.argv[1:2]:
        # RLIMIT_AS would also count what is only reserved: Go's programs and allocators reserve hundreds of megabytes.
        resource.setrlimit(resource.RLIMIT_DATA, (int(most), int(most)))
    try:
        _answer(answer)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _answer(answer: Callable[..., object]) -> NoReturn:
    request = json.loads(sys.stdin.buffer.readline())
    out = os.dup(1)
    os.dup2(2, 1)  # programs started from here must not write to the answer
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    with os.fdopen(out, "w") as stream:
        stream.write(json.dumps(answer(**request)) + "\n")
    os._exit(0)  # does not wait for threads of libraries


def _end_with_the_parent() -> None:
    try:
        os.read(0, 1)  # nothing more is sent: returns, or raises, when the parent closes its end
    finally:
        if os.getpgrp() == os.getpid():  # also ends programs started from here
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
