"""Our own parts against real servers."""
