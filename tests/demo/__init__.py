"""The demo: a failover from start to end, on a real Flink on this machine."""
