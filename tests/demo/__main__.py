"""`make demo`, or `python -m tests.demo`: about a minute, after some downloads. Exit status 1: a step failed, in one line on stderr."""

import sys
from functools import partial
from io import TextIOWrapper

from sidecar.cli import logs
from sidecar.core.errors import OperatorError
from sidecar.net.tls import trust_authorities
from tests.demo.show import show


def main() -> int:
    """Show a failover from end to end, on this machine alone."""
    trust_authorities()
    logs.set_up(debug=False)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 lacks some characters
    try:
        show(partial(print, flush=True))
    except OperatorError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
