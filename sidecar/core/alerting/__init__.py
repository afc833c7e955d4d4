"""From transitions and conditions to alerts, groups of alerts, and messages: Alertmanager's model."""
