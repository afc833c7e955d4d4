"""Why the process of a JobManager ended."""
