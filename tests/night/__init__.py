"""`python -m tests.night`: real failures and planned actions of a real Flink, and whether what the sidecar said of each was true."""
