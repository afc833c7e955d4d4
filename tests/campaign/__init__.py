"""Random faults on real stores, judged from outside: docs/operations.md#the-campaign."""
