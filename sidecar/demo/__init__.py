"""`demo`: the whole way, shown on a real Flink on this machine."""
