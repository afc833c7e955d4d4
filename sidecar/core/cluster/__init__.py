"""One Flink cluster: leadership transitions, the failovers that they make, and the causes of these."""
