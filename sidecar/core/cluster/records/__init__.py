"""The records of a cluster: written, read back, and as lines."""
