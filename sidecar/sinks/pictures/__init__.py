"""Pictures of clusters, from Flink's REST server."""
