"""The queries of the views, a file for each, and what they are about. `terms` has what they are made of."""
