"""Reads which clusters to watch, and Flink's own configuration."""
