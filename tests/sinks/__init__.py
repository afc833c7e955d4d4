"""What leaves the sidecar arrives, or is known not to have."""
