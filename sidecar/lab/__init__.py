"""Runs a real ZooKeeper and a real Flink on this machine, for the demo and the end-to-end tests."""
