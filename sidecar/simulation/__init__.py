"""Rules without a cluster: what a test says happens (`rules test`), or what was recorded (`replay`), and what is told of it."""
