"""What stands in ZooKeeper, brought in as observations.

`session` is kazoo and nothing else: one connection that is opened again for ever, read-only questions, their answers in our words.
`tree` is bookkeeping and nothing else: which paths matter, which to read next, what was news.
`driver` is the thread between them, and what it owes `sidecar.ports.LeaderRetrievalDriver`.

ZooKeeper's one-shot watches show in two places only: `Session.ask` leaves one with each read, and `Tree.answered` asks EXISTS
where there is nothing to read, because only that leaves a watch on a path that is missing. Everything else knows no more than
`Tree.changed(path)`. Their price: the watch on the path of a job that ended stays, half a kilobyte, until the connection does.
"""

from sidecar.drivers.zookeeper.driver import ZooKeeperDriver

__all__ = ["ZooKeeperDriver"]
