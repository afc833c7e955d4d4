"""What stands in ZooKeeper, brought in as observations.

`persistent` is what kazoo lacks, `handler` what it runs on, `security` whom it talks to; `session` is one connection that is opened again
for ever, read-only questions, and their answers in our words.
`tree` is bookkeeping and nothing else: which paths matter, which to read next, what was news, what was missed.
`probe` is how old all that is, and how long an answer may take.
`news` makes observations of it.
`driver` is the thread between them, and what it owes `sidecar.ports.LeaderRetrievalDriver`.
`ledger` is apart from all that: a session of its own, and the only one that writes, below a root of its own.

Whether a server has persistent watches is found out by trying, on each connection. Where it has not, each read leaves a one-shot watch.
Their price: the watch on the path of a job that ended stays, half a kilobyte, until the connection does.
"""

from sidecar.drivers.zookeeper.driver import ZooKeeperDriver

__all__ = ["ZooKeeperDriver"]
