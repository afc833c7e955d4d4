"""The handover: what a sidecar leaves in the store for the one that takes its place, whose folder may be empty.

A sidecar in a Flink pod ends with the pod, and its journal may end with it. What the next one needs is kept outside: who led, the failover
in progress, what was notified and what was not.

Others can write it. Its schema bounds each value (`schema`), its times may not lie in the future, facts that the reader could not
observe itself are left out, its alerts get their labels from the reader's own rules, and messages are composed anew.
"""

from sidecar.core.handover.adoption import adopt, is_watched
from sidecar.core.handover.contents import Handover, cluster_handover
from sidecar.core.handover.document import ForeignHandoverError, HandoverError
from sidecar.core.handover.reader import read
from sidecar.core.handover.writer import written

__all__ = [
    "ForeignHandoverError",
    "Handover",
    "HandoverError",
    "adopt",
    "cluster_handover",
    "is_watched",
    "read",
    "written",
]
