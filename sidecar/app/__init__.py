"""What composes the sidecar, and what commands call: each module is one of these. `loop` is the one thread that owns the state."""
