"""What is recorded of a cluster: written, read back, and as lines."""
