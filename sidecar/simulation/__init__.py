"""Rules without a cluster: the notifications for the events of a test (`rules test`) or of a failover (`alert preview`)."""
