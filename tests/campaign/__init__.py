"""Random faults on real stores, judged from outside: docs/project/campaign.md."""
