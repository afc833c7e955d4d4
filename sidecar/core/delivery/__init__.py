"""What is to be delivered and what became of it, and the ledger by which several sidecars share deliveries."""
