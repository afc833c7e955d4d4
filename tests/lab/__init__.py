"""The lab does what tests and the demo rely on."""
