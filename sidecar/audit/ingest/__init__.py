"""From the segments of a spool to the tables of the log: each id once."""
