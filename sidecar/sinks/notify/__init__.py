"""Deliveries: messages to people through Apprise, heartbeats, and the ledger that several sidecars share."""
