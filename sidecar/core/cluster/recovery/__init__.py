"""Judges the recovery after a failover: jobs, their state, TaskManagers."""
