"""An audit log in an object store: Spark reads and writes the rows (Hadoop's connector), and one writer at a time makes them visible.

- `storage`: the log as a folder. `replacement`: how records are replaced and deleted while readers read.
- `writer_lock`: one writer, fenced. `connection`: URLs, credentials, and Hadoop's connector.
"""
