"""Tests on real pods: `make test-pods`."""
