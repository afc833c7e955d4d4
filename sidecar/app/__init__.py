"""What composes the sidecar, and what commands call. `loop` is the one thread that owns the state."""
