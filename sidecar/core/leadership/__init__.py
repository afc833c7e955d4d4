"""Reads one cluster's store: who leads, since when, and how much of it was not observed."""
