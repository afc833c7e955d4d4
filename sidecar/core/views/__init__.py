"""The data of page, API and commands: derived from state and records, never stored."""
