"""The audit log holds every record once, whatever happens on the way, and answers questions."""
