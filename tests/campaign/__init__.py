"""Random faults on real stores, judged from outside: docs/campaign.md."""
