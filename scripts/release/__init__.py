"""`make version` and `make release`: docs/project/releasing.md."""
