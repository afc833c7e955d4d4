"""Spark itself: its JVM, its session, and what makes its start fast."""
