"""Deliveries: notifications through Apprise, heartbeats, and the ledger that several sidecars share."""
