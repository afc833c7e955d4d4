"""Composes the sidecar, and provides the functions that commands call. `loop` is the one thread that owns the state."""
