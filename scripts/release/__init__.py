"""`make version` and `make release`: docs/releasing.md."""
