"""What is read of a cluster's store: who leads by it, since when, and how much of it was not observed."""
