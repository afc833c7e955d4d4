"""One failover of a cluster: its episode, the cause, and whether it was planned."""
