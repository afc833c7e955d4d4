"""What page, API and commands show: derived from state and records, never stored."""
