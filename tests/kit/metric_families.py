"""What /metrics exposes: every family, and the names of its samples."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from sidecar.core.finder import Finder
from sidecar.core.state import State
from sidecar.core.views.snapshot import Snapshot
from sidecar.sinks.metrics import SinkHealth, SnapshotCollector
from tests.kit.observed_failovers import at

WELL: Final = SinkHealth(spool=True, ledgers={}, handovers={}, events={})
"""Nothing fails; no cluster has a ledger or a handover."""
_SUFFIXES: Final = {"counter": ("_total",), "info": ("_info",), "histogram": ("_bucket", "_count", "_sum")}


def families() -> Iterator[Metric]:
    """Every family of a sidecar that finds its clusters and has found none yet."""
    return SnapshotCollector(lambda: Snapshot(at(0), State(finder=Finder("here"))), str, lambda: WELL).collect()


def sample_names(family: Metric) -> tuple[str, ...]:
    """The names by which Prometheus knows a family."""
    return tuple(family.name + suffix for suffix in _SUFFIXES.get(family.type, ("",)))
