"""Flink's own: components and their leaders, and how both stores hold them (znodes, ConfigMaps, connection info)."""
