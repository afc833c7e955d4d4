"""One Flink cluster: the state that both machines share, one step of it, its status, its records and their words."""
