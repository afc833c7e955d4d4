"""The audit log in its folder: file systems, locks, layout, schemas."""
