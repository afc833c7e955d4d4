"""Evidence of a failover: thread dumps, Python stacks and restored checkpoints, captured while they still exist."""
