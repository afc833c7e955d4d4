"""The command `flink-ha-sidecar`, also as `python -m sidecar`."""

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command."""
    if "run" in sys.argv[1:]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # before the imports, which take longer than a reload may come
    from sidecar.cli.main import main as command  # noqa: PLC0415  see above

    command()


if __name__ == "__main__":
    main()
