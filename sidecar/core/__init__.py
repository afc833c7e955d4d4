"""The pure core: what Flink's leader information means, and what follows from it.

Nothing here knows a clock, a thread, a file, a socket or a log. Time, ids and bytes arrive as arguments; everything that must happen
leaves as an effect. Read `leadership` (the words), `transitions` (the table) and `step` (the one way a change takes), in that order.
"""
