"""Runs a real ZooKeeper and a real Flink on this machine, for the tests and the demo; and the tests of that."""
