"""Flink's processes on this machine or in this pod: which there are, and whose they are."""
