"""What came back after a failover."""
