"""flink-ha-sidecar: watches every Flink HA leader, notifies once per failover, keeps an audit log."""

__version__ = "1.0.0-dev.0"
