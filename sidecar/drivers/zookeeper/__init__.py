"""Observes Flink's leaders in ZooKeeper.

- `zookeeper_session`: one connection, reopened for ever; read-only questions and their answers. Built on kazoo's thread and sockets, on
  `persistent` (what kazoo lacks) and `security`.
- `tree`: which paths matter, which to read next, what is news, what was missed. `watch_set`: the state of one path.
- `reporter`: makes observations; the age of the view, and how long an answer may take.
- `zookeeper_driver`: the thread that has a session observed, for ever; one cluster, a `sidecar.ports.LeaderRetrievalDriver`. `place`: the
  clusters that it observes, each in the same way: the one at the session's root, or all below it (`clusters_below_root`, a
  `sidecar.ports.ClusterFinder`; `discovery`: which there are).
- `ensemble_probe`: what `ha check` asks of the servers.
- `zookeeper_ledger`: independent of all that; a session of its own, the only one that writes, below a root of its own.

The driver tries persistent watches on each connection. If the server has none, each read sets a one-shot watch. One-shot watches cost
half a kilobyte for each ended job until the connection ends.
"""

from sidecar.drivers.zookeeper.zookeeper_driver import ZooKeeperDriver

__all__ = ["ZooKeeperDriver"]
