"""The pure core: what Flink's leader information means, and what follows from it.

Nothing here uses a clock, thread, file, socket or log. Time, ids and bytes arrive as arguments; whatever must happen leaves as an effect.
Read `flink.leadership` (the terms), `leadership.transitions` (the table) and `step` (the path of every change), in that order.
"""
