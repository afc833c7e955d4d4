"""Observes Flink's leaders in ZooKeeper.

- `session`: one connection, reopened for ever; read-only questions and their answers. Built on `persistent` (what kazoo lacks), `handler`
  (kazoo's thread and sockets) and `security`.
- `tree`: which paths matter, which to read next, what is news, what was missed. `watch_set`: the state of one path.
- `probe`: the age of the view, and how long an answer may take.
- `reporter`: makes observations.
- `connection`: the thread that has a session observed, for ever. `place`: the clusters that it observes, each in the same way: the one at
  the session's root (`driver`, a `sidecar.ports.LeaderRetrievalDriver`), or all below it (`clusters_below_root`, a
  `sidecar.ports.ClusterFinder`; `discovery`: which there are).
- `ledger`: independent of all that; a session of its own, the only one that writes, below a root of its own.

The driver tries persistent watches on each connection. If the server has none, each read sets a one-shot watch. One-shot watches cost
half a kilobyte for each ended job until the connection ends.
"""

from sidecar.drivers.zookeeper.driver import ZooKeeperDriver

__all__ = ["ZooKeeperDriver"]
