"""Questions to the log: `audit sql`, `audit shell`, the views in a session."""
