"""`python -m sidecar` is `flink-ha-sidecar`."""

from sidecar.cli.main import main

main()
